// Tests every collective over MPI with every type and operation: comm_bench
// checks each element of the results.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

void ExpectRightResults(int ranks, const std::string& layer,
                        const std::string& place) {
  const Finished run = RunCommBench(
      {absl::StrCat("--nproc=", ranks), "--backend=mpi", "--layer=" + layer,
       "--place=" + place, "--collectives=all", "--dtypes=all", "--ops=all",
       "--sizes=40000", "--threads=1", "--warmup=0", "--iterations=1"});
  if (absl::StrContains(run.err, "apt-get install")) GTEST_SKIP() << run.err;
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_TRUE(absl::StrContains(
      run.out, "# left out: reduce of float64 with op avg: --backend=mpi "))
      << run.out;
}

class CommBenchMpiTest : public ::testing::TestWithParam<int> {};

TEST_P(CommBenchMpiTest, ThroughC10d) {
  ExpectRightResults(GetParam(), "c10d", "auto");
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommBenchMpiTest,
                         ::testing::Values(1, 2, 3, 4));

// Two ranks, as MPI's own calls spin.
TEST(CommBenchRawMpiTest, ByMpisOwnCalls) {
  ExpectRightResults(2, "mpi", "both");
}

TEST(CommBenchMpiRefusalTest, WhatMpiLacksIsRefusedBeforeTheStart) {
  for (const auto& [flag, refusal] :
       std::vector<std::pair<const char*, const char*>>{
           {"--sizes=8,2G",
            "all_reduce of uint8: --backend=mpi carries at most "
            "2147483647 elements in a call, not 2147483648"},
           {"--ops=avg", "reduces by sum, prod, min and max only"}}) {
    const Finished run = RunCommBench(
        {"--nproc=2", "--backend=mpi", "--dtypes=uint8", flag, "--threads=1"});
    if (absl::StrContains(run.err, "apt-get install")) GTEST_SKIP() << run.err;
    EXPECT_EQ(run.code, 2);
    EXPECT_TRUE(absl::StrContains(run.err, refusal)) << run.err;
    EXPECT_FALSE(absl::StrContains(run.err, "[launcher]")) << run.err;
  }
}

}  // namespace
}  // namespace rankwise
