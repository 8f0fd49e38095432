#include "analysis/model_flops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "analysis/trace_for_test.h"

namespace rankwise {
namespace {

// 640 examples/s on each rank, of 0.5 TFLOP forward, against 2000 TFLOPS.
RunTrace RunOn(int64_t world_size) {
  RunTrace run = MakeRun({.world_size = world_size, .step_seconds = 0.1});
  for (RankTrace& rank : run.ranks) {
    rank.run.forward_flops_per_example = 5e11;
    rank.run.flags["peak_tflops"] = "2000";
  }
  return run;
}

Cell CellOf(const std::vector<RunTrace>& runs) {
  std::vector<std::string> left_out;
  return GroupIntoCells(runs, {10}, &left_out).at(0);
}

TEST(ModelFlopsUtilization, IsThreeForwardPassesOverThePeak) {
  EXPECT_NEAR(ModelFlopsUtilization(CellOf({RunOn(1)})),
              640.0 * 3 * 5e11 / 2e15, 1e-12);
}

TEST(ModelFlopsUtilization, EveryRankHasADevice) {
  EXPECT_NEAR(ModelFlopsUtilization(CellOf({RunOn(4), RunOn(4)})), 0.48, 1e-12);
}

TEST(ModelFlopsUtilization, ARankMayHaveSeveralDevices) {
  RunTrace run = RunOn(1);
  run.ranks[0].run.devices = {"cuda:0", "cuda:1", "cuda:0"};
  EXPECT_NEAR(ModelFlopsUtilization(CellOf({run})), 0.24, 1e-12);
}

TEST(ModelFlopsUtilization, IsNotKnownWithoutOnePeakAndTheModelsOperations) {
  RunTrace no_model = RunOn(1);
  no_model.ranks[0].run.forward_flops_per_example = 0;
  EXPECT_TRUE(std::isnan(ModelFlopsUtilization(CellOf({no_model}))));
  RunTrace no_peak = RunOn(1);
  no_peak.ranks[0].run.flags["peak_tflops"] = "0";
  EXPECT_TRUE(std::isnan(ModelFlopsUtilization(CellOf({no_peak}))));
  no_peak.ranks[0].run.flags.erase("peak_tflops");
  EXPECT_TRUE(std::isnan(ModelFlopsUtilization(CellOf({no_peak}))));
  RunTrace other = RunOn(1);
  other.ranks[0].run.flags["peak_tflops"] = "1000";
  EXPECT_TRUE(std::isnan(ModelFlopsUtilization(CellOf({RunOn(1), other}))));
}

}  // namespace
}  // namespace rankwise
