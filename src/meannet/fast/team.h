// Threads that share loops: whichever is free takes the next part.
//
// OpenMP would do this, but its threads spin while they wait unless its runtime was told otherwise before it was loaded,
// and PyTorch loads the same runtime first. With a busy process beside them, threads that spin cost several times the
// time. These look for work a short while and then sleep, and nobody waits for one that has not begun. They live as long
// as one call, so that none is idle between calls and a process may fork.
//
// Two things more for a busy neighbour. A thread that loses its core in the middle of a part keeps the others waiting, so
// it offers the core between parts, when nobody waits for it. And the scheduler may leave two threads of a team on one
// core and the neighbour alone on another; a thread that finds itself where the first one is leaves that core.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace {  // compiled anew for each instruction set

class Team {
 public:
  explicit Team(int size) {
    others.reserve(size - 1);  // before there is a thread that would have to be joined
    try {
      for (int number = 1; number < size; number++) others.emplace_back([this, number] { help(number); });
    } catch (const std::exception&) {
      // The system gives no more threads, or no memory for one; those there are do all the work.
    }
  }

  ~Team() {
    {
      std::lock_guard<std::mutex> held(mutex);
      over = true;
      loop++;
    }
    begins.notify_all();
    for (auto& thread : others) thread.join();
  }

  // work(part, thread) once for each part below `parts`; returns when all are done.
  template <class Work>
  void share(int parts, const Work& work) {
    if (others.empty() || parts < 2) {
      for (int part = 0; part < parts; part++) work(part, 0);
      return;
    }
    {
      std::lock_guard<std::mutex> held(mutex);
      call = [](const void* what, int part, int thread) { (*static_cast<const Work*>(what))(part, thread); };
      body = &work;
      count = parts;
      next = 0;
      open = true;
      loop++;
    }
    begins.notify_all();
    first_core = core();
    take(0, Clock::time_point::max());
    for (int looks = 0; inside && looks < LOOKS; looks++) pause();
    std::unique_lock<std::mutex> held(mutex);
    open = false;
    ends.wait(held, [this] { return inside == 0; });
  }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr int LOOKS = 2000;  // some tens of microseconds, each with a pause
  static constexpr std::chrono::microseconds TURN{1000};  // after which a thread offers its core

  std::vector<std::thread> others;
  std::mutex mutex;
  std::condition_variable begins, ends;
  std::atomic<unsigned> loop{0};            // how many were begun
  std::atomic<int> next{0}, inside{0};      // the next part; how many of the others are at work
  std::atomic<int> first_core{-1};          // where the thread is that began the loop
  bool open = false, over = false;          // these and what follows change under the mutex, with nobody inside
  int count = 0;
  const void* body = nullptr;
  void (*call)(const void*, int, int) = nullptr;

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }

  static int core() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
  }

  // Moves this thread off the core of the first, where it may run elsewhere, and leaves it free to go anywhere again.
  void leave_first_core() const {
#if defined(__linux__)
    const int here = core();
    cpu_set_t allowed;
    if (here < 0 || here != first_core || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    cpu_set_t elsewhere = allowed;
    CPU_CLR(here, &elsewhere);
    if (CPU_COUNT(&elsewhere) == 0 || sched_setaffinity(0, sizeof elsewhere, &elsewhere) != 0) return;
    sched_setaffinity(0, sizeof allowed, &allowed);
#endif
  }

  // Parts until there are none left, or until this thread's turn is over.
  void take(int thread, Clock::time_point until) {
    for (int part; (part = next++) < count;) {
      call(body, part, thread);
      if (Clock::now() > until) return;
    }
  }

  void help(int thread) {
    unsigned seen = 0;
    auto until = Clock::now() + TURN;
    for (;;) {
      for (int looks = 0; loop == seen && looks < LOOKS; looks++) pause();
      {
        std::unique_lock<std::mutex> held(mutex);
        begins.wait(held, [&] { return loop != seen; });
      }
      leave_first_core();
      {
        std::lock_guard<std::mutex> held(mutex);
        seen = loop;
        if (over) return;
        if (!open) continue;  // the others have done it all
        inside++;
      }
      take(thread, until);
      {
        std::lock_guard<std::mutex> held(mutex);
        if (--inside == 0) ends.notify_one();
      }
      if (Clock::now() > until) {
        std::this_thread::yield();
        until = Clock::now() + TURN;
        seen--;  // what is left of the loop
      }
    }
  }
};

}  // namespace
