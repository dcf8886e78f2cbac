// The entry points that Python calls, and the choice of instruction set at run time.

#include "update.h"

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

int meannet_best_set() { return best_set(); }

int meannet_has_threads() {
#ifdef _OPENMP
  return 1;
#else
  return 0;
#endif
}

// Run `updates` mini-batches of every net; `set` must not be above meannet_best_set().
void meannet_run(const Shape* shape, Net* nets, const Batch* batches, int updates, const Tally* tallies, int threads,
                 int set) {
#ifdef WITH_X86_VECTORS
  if (set == 2) return avx512::run(*shape, nets, batches, updates, tallies, threads);
  if (set == 1) return avx2::run(*shape, nets, batches, updates, tallies, threads);
#endif
  (void)set;
  plain::run(*shape, nets, batches, updates, tallies, threads);
}
}
