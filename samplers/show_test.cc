// Runs the binary as a user does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace {

using ::testing::HasSubstr;

struct Result {
  int exit_code;
  std::string output;  // stdout and stderr
};

Result Show(const std::string& flags) {
  FILE* pipe = popen(("samplers/show " + flags + " 2>&1").c_str(), "r");
  std::string output;
  for (int byte = fgetc(pipe); byte != EOF; byte = fgetc(pipe)) {
    output.push_back(static_cast<char>(byte));
  }
  return {WEXITSTATUS(pclose(pipe)), output};
}

void ExpectRefused(const std::string& flags, const std::string& message) {
  const Result result = Show(flags);
  EXPECT_EQ(result.exit_code, 2) << flags;
  EXPECT_THAT(result.output, HasSubstr(message)) << flags;
}

TEST(ShowTest, PrintsALinePerRank) {
  const Result result = Show("--size=5 --world_size=2 --noshuffle");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "rank 0: 0 2 4\nrank 1: 1 3 0\n");
}

TEST(ShowTest, PrintsOneRank) {
  EXPECT_EQ(Show("--size=5 --world_size=2 --shuffle=false --rank=1").output,
            "rank 1: 1 3 0\n");
}

TEST(ShowTest, ShufflesAsPythonDoes) {
  // DistributedSampler(range(7), 2, rank, seed=3), set_epoch(4).
  EXPECT_EQ(Show("--size=7 --world_size=2 --seed=3 --epoch=4").output,
            "rank 0: 5 3 2 4\nrank 1: 0 1 6 5\n");
}

TEST(ShowTest, DropsTheTailOrIsExact) {
  EXPECT_EQ(Show("--size=5 --world_size=2 --noshuffle --drop_last").output,
            "rank 0: 0 2\nrank 1: 1 3\n");
  EXPECT_EQ(Show("--size=5 --world_size=2 --noshuffle --mode=exact").output,
            "rank 0: 0 2 4\nrank 1: 1 3\n");
  EXPECT_EQ(Show("--size=0 --world_size=2").output, "rank 0:\nrank 1:\n");
}

TEST(ShowTest, RefusesWhatMakesNoSense) {
  ExpectRefused("--size=-4", "--size=-4: it must be in 0 .. 100000000");
  ExpectRefused("--size=1000000000000", "--size=1000000000000: it must be");
  ExpectRefused("--size=many", "many");
  ExpectRefused("--world_size=0", "--world_size=0: it must be in 1 .. 1000000");
  ExpectRefused("--world_size=1000001", "it must be in 1 .. 1000000");
  ExpectRefused("--world_size=9223372036854775807",
                "--world_size=9223372036854775807: it must be in 1 ..");
  ExpectRefused("--size=100000000 --world_size=1000",
                "orders 100000000 examples 1000 times; print one by --rank");
  ExpectRefused("--world_size=2 --rank=2", "--rank=2: with --world_size=2");
  ExpectRefused("--rank=-2", "--rank=-2");
  ExpectRefused("--epoch=-1", "--epoch=-1: it must be 0 or more");
  ExpectRefused("--mode=fair", "--mode=fair: it must be padded or exact");
  ExpectRefused("--mode=exact --drop_last", "drop_last cannot be combined");
  ExpectRefused("--seed=-1", "seed");
  ExpectRefused("10", "unexpected argument \"10\"");
  ExpectRefused("--sise=10", "sise");
}

}  // namespace
