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

  ~OwnCores() {
    if (each) sched_setaffinity(0, sizeof allowed, &allowed);
  }

  void keep(int thread) const {
    for (int core = 0, before = 0; each && core < CPU_SETSIZE; core++) {
      if (!CPU_ISSET(core, &allowed) || before++ != thread) continue;
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(core, &own);
      sched_setaffinity(0, sizeof own, &own);
    }
  }

 private:
  bool each;
  cpu_set_t allowed;
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

    // work(part) once for each part below `parts`, which is not 0, by whoever comes first; returns when all are done.
    template <class Work>
    void share(int parts, const Work& work) {
      if (team.size == 1) {
        for (int part = 0; part < parts; part++) work(part);
        return;
      }
      const uint32_t here = loops++;
      for (uint64_t seen = team.next; loop_of(seen) == here;) {
        if (part_of(seen) == parts) return team.wait(here);
        if (!team.next.compare_exchange_weak(seen, seen + 1)) continue;
        work(part_of(seen));
        if (++team.done == parts) return team.finish(here);
        if (Clock::now() > until) {
          std::this_thread::yield();
          until = Clock::now() + TURN;
        }
        seen = team.next;
      }
    }

   private:
    Team& team;
    uint32_t loops = 0;  // that this thread has come to
    Clock::time_point until = Clock::now() + TURN;
  };

  explicit Team(int size_) : size(size_) {}

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
  static constexpr std::chrono::microseconds TURN{1000};  // after which a thread offers its core

  const int size;
  std::atomic<uint64_t> next{0};  // the loop that is under way, and below it the first part of it that nobody has taken
  std::atomic<int> done{0};       // parts of that loop
  std::mutex mutex;
  std::condition_variable over;

  static uint32_t loop_of(uint64_t next) { return static_cast<uint32_t>(next >> 32); }
  static int part_of(uint64_t next) { return static_cast<int>(next & 0xFFFFFFFF); }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }

  // Called by whoever did the last part.
  void finish(uint32_t loop) {
    done = 0;
    {
      std::lock_guard<std::mutex> held(mutex);  // or one about to sleep would miss it
      next = uint64_t{loop + 1} << 32;
    }
    over.notify_all();
  }

  void wait(uint32_t loop) {
    for (int looks = 0; loop_of(next) == loop && looks < LOOKS; looks++) pause();
    if (loop_of(next) != loop) return;
    std::unique_lock<std::mutex> held(mutex);
    over.wait(held, [&] { return loop_of(next) != loop; });
  }
};

}  // namespace
