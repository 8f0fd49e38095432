#include "parallel/launch/cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "parallel/launch/comm_flags.h"
#include "records/usable_resources.h"

namespace rankwise {
namespace {

RankEnv LocalRanks(int ranks) {
  RankEnv env;
  env.world_size = env.local_world_size = ranks;
  return env;
}

// Binds this process to the first of its CPUs.
void BindToOneCpu() {
  cpu_set_t all, first;
  CPU_ZERO(&first);
  sched_getaffinity(0, sizeof(all), &all);
  for (int cpu = 0; CPU_COUNT(&first) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &first);
  }
  sched_setaffinity(0, sizeof(first), &first);
}

// Returns count() in a child process that is bound to one CPU, as a launcher
// binds a rank; with `parent_too`, its parent is bound as well.
int InBoundChild(const std::function<int()>& count, bool parent_too) {
  const pid_t launcher = fork();
  if (launcher == 0) {
    if (parent_too) BindToOneCpu();
    const pid_t rank = fork();
    if (rank == 0) {
      BindToOneCpu();
      _exit(count());
    }
    int status = 0;
    waitpid(rank, &status, 0);
    _exit(WEXITSTATUS(status));
  }
  int status = 0;
  waitpid(launcher, &status, 0);
  return WEXITSTATUS(status);
}

TEST(CoresOfLocalRanks, BoundRanksHaveThoseOfTheirLauncherTogether) {
  const auto two = [] { return CoresOfLocalRanks(LocalRanks(2)); };
  EXPECT_EQ(InBoundChild(two, /*parent_too=*/false), UsableCores());
  EXPECT_EQ(InBoundChild(two, /*parent_too=*/true), 1);
}

TEST(CoresOfLocalRanks, ARankWithoutLocalPeersHasItsOwn) {
  const auto one = [] { return CoresOfLocalRanks(LocalRanks(1)); };
  EXPECT_EQ(InBoundChild(one, /*parent_too=*/false), 1);
}

TEST(CoresPerRank, IsAShareAndNoMoreThanTheRanksOwn) {
  const int cores = static_cast<int>(UsableCores());
  EXPECT_EQ(CoresPerRank(LocalRanks(1)), cores);
  EXPECT_EQ(CoresPerRank(LocalRanks(2)), std::max(1, cores / 2));
  EXPECT_EQ(CoresPerRank(LocalRanks(1000 * cores)), 1);
  const auto one = [] { return CoresPerRank(LocalRanks(1)); };
  EXPECT_EQ(InBoundChild(one, /*parent_too=*/false), 1);
}

TEST(ThreadsPerRank, AreTheCoresOfTheRankUnlessRequested) {
  EXPECT_EQ(ThreadsPerRank(7, LocalRanks(2)), 7);
  const auto threads = [] { return ThreadsPerRank(0, LocalRanks(1)); };
  EXPECT_EQ(InBoundChild(threads, /*parent_too=*/false), 1);
}

}  // namespace
}  // namespace rankwise
