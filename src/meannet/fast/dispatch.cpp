// The entry points that Python calls, and the choice of instruction set at run time.

#include "update.h"

#include <new>

#define DECLARE(SET) \
  namespace SET { \
  void run(const Shape&, Net*, const Batch*, int, const Tally*, int); \
  }
DECLARE(plain)
#ifdef WITH_X86_VECTORS
DECLARE(avx2)
DECLARE(avx512)
#endif

namespace {

// 0 plain, 1 AVX2 with FMA, 2 AVX-512
int best_set() {
#ifdef WITH_X86_VECTORS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return 2;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
  return 0;
}

}  // namespace

extern "C" {

// What the structures of update.h look like: cpu.py refuses a library that was built from others.
int meannet_layout() { return LAYOUT; }

int meannet_best_set() { return best_set(); }

// Run `updates` mini-batches of every net; `set` must not be above meannet_best_set(). Returns 0, or 1 if memory ran out.
int meannet_run(const Shape* shape, Net* nets, const Batch* batches, int updates, const Tally* tallies, int threads,
                int set) {
  auto run = plain::run;
#ifdef WITH_X86_VECTORS
  if (set == 2) run = avx512::run;
  if (set == 1) run = avx2::run;
#endif
  (void)set;
  try {
    run(*shape, nets, batches, updates, tallies, threads);
  } catch (const std::bad_alloc&) {
    return 1;
  }
  return 0;
}
}
