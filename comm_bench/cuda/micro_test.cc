#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/comm/test_process.h"

namespace rankwise::micro {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

const std::string& Micro() {
  static const auto& path = *new std::string(Runfile("comm_bench/cuda/micro"));
  return path;
}

// Hides all GPUs of the machine.
TEST(Micro, WithoutAGpuSaysSoInOneLine) {
  TestProcess process({Micro()}, {"CUDA_VISIBLE_DEVICES=-1"});
  EXPECT_EQ(process.Wait(), 2);
  EXPECT_THAT(process.Stderr(), MatchesRegex("micro: error: [^\n]+\n"));
  EXPECT_EQ(process.Stdout(), "");
}

TEST(Micro, RefusesUnknownFlagsAndWords) {
  for (const char* argument : {"--no_such_flag", "word"}) {
    TestProcess process({Micro(), argument}, {"CUDA_VISIBLE_DEVICES=-1"});
    EXPECT_EQ(process.Wait(), 2);
    EXPECT_THAT(process.Stderr(), HasSubstr(argument));
  }
}

TEST(Micro, HelpNeedsNoGpu) {
  TestProcess process({Micro(), "--help"}, {"CUDA_VISIBLE_DEVICES=-1"});
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  EXPECT_THAT(process.Stdout(), StartsWith("benchmark "));
}

}  // namespace
}  // namespace rankwise::micro
