// The entry points that Python calls, and the choice of instruction set at run time.

#include "update.h"

#include <exception>

#define DECLARE(SET) \
  namespace SET { \
  void run(const Shape&, Net*, const Batch*, int, const Tally*, int); \
  void turn_on(const float*, float*, uint64_t, uint32_t, uint32_t, int64_t, int64_t); \
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
  } catch (const std::exception&) {  // no memory, or a size that none could have
    return 1;
  }
  return 0;
}

// States of units from their probabilities, (nets, rows, units) of both, each net from its own seed.
void meannet_turn_on(const float* probabilities, float* states, const int64_t* seeds, int nets, uint32_t place,
                     uint32_t update, int64_t rows, int64_t units) {
  auto turn_on = plain::turn_on;
#ifdef WITH_X86_VECTORS
  if (best_set() == 2) turn_on = avx512::turn_on;
  if (best_set() == 1) turn_on = avx2::turn_on;
#endif
  for (int net = 0; net < nets; net++)
    turn_on(probabilities + net * rows * units, states + net * rows * units, static_cast<uint64_t>(seeds[net]), place,
            update, rows, units);
}
}
