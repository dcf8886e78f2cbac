// Threads of a team go through loops whose parts check that each was done once and that the loop before was over.

#include "../../src/meannet/fast/team.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace {

int cores_allowed() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  return 0;
}

int parts_of(int loop) { return 1 + loop * 7 % 13; }

}  // namespace

int main(int, char** arguments) {
  const int threads = std::atoi(arguments[1]), loops = std::atoi(arguments[2]), allowed = cores_allowed();
  std::vector<std::vector<long>> made;  // plain numbers: two threads at one of them would be a race
  for (int loop = 0; loop < loops; loop++) made.emplace_back(parts_of(loop));
  std::vector<int> kept(threads);
  long wrong = 0;

  Team team(threads);
  team.run([&](Team::Member& member) {
    kept[member.number] = cores_allowed();
    for (int loop = 0; loop < loops; loop++)
      member.share(parts_of(loop), [&](int part) {
        long before = 0;
        if (loop) before = std::accumulate(made[loop - 1].begin(), made[loop - 1].end(), 0L);
        made[loop][part] += 1 + before % 1000;
      });
  });

  for (long loop = 0, before = 0; loop < loops; loop++) {
    for (const long one : made[loop]) wrong += one != 1 + before % 1000;
    before = std::accumulate(made[loop].begin(), made[loop].end(), 0L);
  }
  // A thread that came when all was done has no part in this.
  for (const int cores : kept) wrong += allowed && cores && cores != (threads > 1 && threads == allowed ? 1 : allowed);
  wrong += cores_allowed() != allowed;
  std::printf("%ld wrong\n", wrong);
  return wrong != 0;
}
