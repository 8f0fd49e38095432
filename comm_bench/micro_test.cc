#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "parallel/comm/test_process.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::ElementsAre;

// Returns the families without arguments: BM_Simulate for "BM_Simulate/8/32".
std::set<std::string> Families(const std::string& list) {
  std::set<std::string> families;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(list, '\n'))) {
    if (!line.empty()) families.insert(line.substr(0, line.find('/')));
  }
  return families;
}

// Detects a library of benchmarks that the linker left out.
TEST(Micro, HoldsTheBenchmarksOfAllRooms) {
  TestProcess process(
      {Runfile("comm_bench/micro"), "--benchmark_list_tests=true"});
  ASSERT_EQ(process.Wait(), 0) << process.Stderr();
  EXPECT_THAT(
      Families(process.Stdout()),
      ElementsAre("BM_AllReduceDirect", "BM_AllReduceMonitored",
                  "BM_AllReducePolled", "BM_AssignBuckets", "BM_MakeSchedule",
                  "BM_Simulate", "BM_Validate", "FormatCollective",
                  "FormatStep", "Gather", "Indices", "Loader", "ParseStep",
                  "Transform", "TransformByOperators", "WriteSteps"));
}

}  // namespace
}  // namespace rankwise::comm_bench
