// Threads that go through one program together, loop by loop.
//
// OpenMP would do this, but its threads spin while they wait unless its runtime was told otherwise before it was loaded,
// and PyTorch loads the same runtime first. With a busy process beside them, threads that spin cost several times the
// time. These look for work a short while and then sleep. They live as long as one call, so that none is idle between
// calls and a process may fork.
//
// No thread leads: each goes through the whole program, takes parts of loops that nobody has taken, and passes over loops
// that are done. So one that loses its core to another process is waited for only while it holds a part, and it offers
// the core between parts. Where there is a thread for each core, each keeps to one as long as the call lasts; left to
// itself the scheduler may put two on one core and the other process alone on the other.
//
// Each thread begins with parts of its own, the same share of every loop, and helps others when it is through with them.
// So what belongs to a part stays in its core's cache from loop to loop. That matters most where cores share no cache:
// what another core has written takes several times as long to come from there.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace {  // compiled anew for each instruction set

// Holds threads to a core each where there are as many of them as cores this process may use, and lets the caller's go.
class OwnCores {
#if defined(__linux__)
 public:
  explicit OwnCores(int threads) {
    each = threads > 1 && sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) == threads;
  }

  // Unless somebody else has said meanwhile where it is to run.
  ~OwnCores() {
    cpu_set_t now, own = core_of(0);
    if (each && sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &own))
      sched_setaffinity(0, sizeof allowed, &allowed);
  }

  void keep(int thread) const {
    const cpu_set_t own = core_of(thread);
    if (each) sched_setaffinity(0, sizeof own, &own);
  }

 private:
  bool each;
  cpu_set_t allowed;

  cpu_set_t core_of(int thread) const {
    cpu_set_t own;
    CPU_ZERO(&own);
    for (int core = 0, before = 0; each && core < CPU_SETSIZE; core++)
      if (CPU_ISSET(core, &allowed) && before++ == thread) CPU_SET(core, &own);
    return own;
  }
#else
 public:
  explicit OwnCores(int) {}
  void keep(int) const {}
#endif
};

class Team {
  using Clock = std::chrono::steady_clock;

 public:
  // One thread's way through the program.
  class Member {
   public:
    const int number;

    Member(Team& team_, int number_) : number(number_), team(team_) {}

    // work(part) once for each part below `parts`, which is not 0; returns when all are done.
    template <class Work>
    void share(int parts, const Work& work) {
      if (team.size == 1) {
        for (int part = 0; part < parts; part++) work(part);
        return;
      }
      const uint32_t here = loops++;
      for (int turn = 0; turn < team.size; turn++) {
        const int64_t whose = (number + turn) % team.size, first = parts * whose / team.size;
        const int64_t count = parts * (whose + 1) / team.size - first;
        std::atomic<uint64_t>& next = team.shares[whose].next;
        for (uint64_t seen = next; loop_of(seen) == here && part_of(seen) < count;) {
          if (!next.compare_exchange_weak(seen, seen + 1)) continue;
          work(static_cast<int>(first + part_of(seen)));
          if (++team.done == parts) return team.finish(here);
          offer_core();
          seen = next;
        }
      }
      team.wait(here);
    }

   private:
    Team& team;
    uint32_t loops = 0;  // that this thread has come to
    Clock::time_point until = Clock::now() + TURN;

    void offer_core() {
      if (Clock::now() <= until) return;
      std::this_thread::yield();
      until = Clock::now() + TURN;
    }
  };

  explicit Team(int size_) : size(size_), shares(size_) {}

  // program(member) on every thread of the team, the caller's among them; all members must come to the same loops.
  template <class Program>
  void run(const Program& program) {
    OwnCores cores(size);
    auto go = [&](int number) {
      cores.keep(number);
      Member member(*this, number);
      program(member);
    };
    std::vector<std::thread> others;
    others.reserve(size - 1);  // before there is a thread that would have to be joined
    try {
      for (int number = 1; number < size; number++) others.emplace_back(go, number);
    } catch (const std::exception&) {
      // The system gives no more threads, or no memory for one; those there are do all the work.
    }
    go(0);
    for (auto& thread : others) thread.join();
  }

 private:
  static constexpr int LOOKS = 2000;  // some tens of microseconds, each with a pause
  // After which a thread offers its core; the scheduler would take it after 3 or 4 ms, within a part if need be.
  static constexpr std::chrono::microseconds TURN{2000};

  static constexpr int LINE = 64;  // of a cache; what one thread writes often and others seldom read has one to itself

  // A loop, and below it how many parts of one thread's share of it are taken.
  struct alignas(LINE) Share {
    std::atomic<uint64_t> next{0};
  };

  const int size;
  std::vector<Share> shares;  // of each thread
  alignas(LINE) std::atomic<int> done{0};  // parts of the loop that is under way
  alignas(LINE) std::atomic<uint32_t> loop{0};  // which loop that is
  std::mutex mutex;
  std::condition_variable over;

  static uint32_t loop_of(uint64_t next) { return static_cast<uint32_t>(next >> 32); }
  static int64_t part_of(uint64_t next) { return static_cast<int64_t>(next & 0xFFFFFFFF); }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }

  // Called by whoever did the last part of it. Nobody comes to the next loop before this one is said to be over.
  void finish(uint32_t here) {
    done = 0;
    for (Share& share : shares) share.next = uint64_t{here + 1} << 32;
    {
      std::lock_guard<std::mutex> held(mutex);  // or one about to sleep would miss it
      loop = here + 1;
    }
    over.notify_all();
  }

  // Until loop `here` is over; a thread may come when that is long so.
  void wait(uint32_t here) {
    for (int looks = 0; loop == here && looks < LOOKS; looks++) pause();
    if (loop != here) return;
    std::unique_lock<std::mutex> held(mutex);
    over.wait(held, [&] { return loop != here; });
  }
};

}  // namespace
