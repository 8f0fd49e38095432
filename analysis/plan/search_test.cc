#include "analysis/plan/search.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "analysis/plan/output.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

using ::testing::HasSubstr;

Cluster MakeCluster(double memory_bytes) {
  Cluster cluster;
  cluster.name = "test";
  cluster.devices_per_node = 4;
  cluster.device = {1e12, {0.9, 1e8}, memory_bytes, 1e11};
  cluster.network = StatedNetwork({1e-5, 5e9, 5e-5, 4e9});
  return cluster;
}

Setting MakeSetting(double memory_bytes = 1e12) {
  return {{"eight", 8, 256, 8, 128, 1024},
          *OwnEngine("fp32"),
          MakeCluster(memory_bytes)};
}

SearchConfig Ranks(int64_t ranks, int64_t batch) {
  SearchConfig config;
  config.ranks = ranks;
  config.global_batch = batch;
  return config;
}

// Simulates every layout.
double FastestOfAll(StepModel& steps, int64_t ranks, int64_t batch,
                    double memory_bytes) {
  double fastest = std::numeric_limits<double>::infinity();
  const auto try_it = [&](const Layout& layout) {
    const auto step = steps.Quick(layout);
    if (step.ok() && step->memory.sum() <= memory_bytes)
      fastest = std::min(fastest, step->step_seconds);
  };
  for (int64_t pp = 1; pp <= ranks; ++pp)
    for (int64_t tp = 1; tp <= 4; ++tp)
      for (int64_t cp = 1; cp <= ranks; ++cp) {
        if (ranks % (pp * tp * cp) != 0) continue;
        const int64_t dp = ranks / pp / tp / cp;
        if (batch % dp != 0) continue;
        for (int64_t b = 1; b <= batch / dp; b *= 2) {
          if (batch / dp % b != 0) continue;
          for (const char* schedule :
               {"1f1b", "interleaved_1f1b", "zero_bubble_h1", "zbv"})
            for (int64_t chunks = 1; chunks <= 8; ++chunks)
              for (int zero = 0; zero <= 3; ++zero)
                for (const bool recompute : {false, true})
                  for (const bool sequence : {false, true}) {
                    const std::string name = schedule;
                    const bool fits = name == "zbv" ? chunks == 2
                                      : name == "interleaved_1f1b"
                                          ? chunks > 1 && 8 % (pp * chunks) == 0
                                          : chunks == 1;
                    if (!fits || (pp == 1 && name != "1f1b")) continue;
                    Layout layout{.pp = pp,
                                  .dp = dp,
                                  .cp = cp,
                                  .tp = tp,
                                  .zero = zero,
                                  .schedule = name,
                                  .chunks = chunks,
                                  .micro_batch = b,
                                  .micro_batches = batch / dp / b};
                    layout.recompute =
                        recompute ? Recompute::kFull : Recompute::kNone;
                    layout.sequence_parallel = sequence;
                    try_it(layout);
                  }
        }
      }
  return fastest;
}

TEST(SearchTest, FindsWhatTryingEverythingFinds) {
  for (const double memory : {1e12, 60e6, 30e6}) {
    StepModel steps = *StepModel::Create(MakeSetting(memory));
    const auto result = Search(steps, Ranks(8, 16));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_DOUBLE_EQ(result->best.front().step_seconds,
                     FastestOfAll(steps, 8, 16, memory))
        << memory;
    EXPECT_LT(result->simulated, result->fit);
    for (const Step& planned : result->best) {
      EXPECT_LE(planned.memory.sum(), memory);
      EXPECT_EQ(planned.layout.ranks(), 8);
      EXPECT_EQ(planned.layout.global_batch(), 16);
    }
  }
}

TEST(SearchTest, ListsEachMeshOnceTheFastestFirst) {
  StepModel steps = *StepModel::Create(MakeSetting());
  const SearchResult result = *Search(steps, Ranks(16, 32));
  ASSERT_GT(result.best.size(), 3u);
  for (size_t i = 1; i < result.best.size(); ++i) {
    EXPECT_LE(result.best[i - 1].step_seconds, result.best[i].step_seconds);
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(result.best[i].layout.MeshName(),
                result.best[j].layout.MeshName());
    }
  }
}

// single and ddp have no --recompute, even if memory is insufficient.
TEST(SearchTest, PrintsRecomputeOnlyForTrainersThatHaveIt) {
  bool recomputes = false;
  for (const int64_t ranks : {1, 2}) {
    bool fits = true;
    for (double memory = 1e9; fits; memory *= 0.9) {
      const Setting setting = MakeSetting(memory);
      StepModel steps = *StepModel::Create(setting);
      const auto result = Search(steps, Ranks(ranks, 16));
      fits = result.ok();
      if (!fits) continue;
      for (const Step& planned : result->best) {
        const std::string command =
            CommandOf(setting.model, planned.layout, "fp32");
        if (!absl::StrContains(command, "--recompute")) continue;
        recomputes = true;
        EXPECT_FALSE(absl::StrContains(command, "//trainers:single"))
            << command;
        EXPECT_FALSE(absl::StrContains(command, "//trainers:ddp")) << command;
      }
    }
  }
  EXPECT_TRUE(recomputes);
}

TEST(SearchTest, SaysWhatTheLeastWouldTake) {
  StepModel steps = *StepModel::Create(MakeSetting(1e6));
  EXPECT_THAT(std::string(Search(steps, Ranks(4, 4)).status().message()),
              HasSubstr("takes 0.0 GB or more"));
}

TEST(SearchTest, SaysThatNoReplicasDivideTheBatch) {
  StepModel steps = *StepModel::Create(MakeSetting());
  // 7 divides neither heads nor tokens, and 56 stages are too many.
  EXPECT_THAT(std::string(Search(steps, Ranks(11, 4)).status().message()),
              HasSubstr("--global_batch"));
}

// 1,021 is prime: either 1,021 replicas, or 1,021 ranks with 7 stages each and
// 3,063 micro-batches, a schedule too large for MakeSchedule.
TEST(SearchTest, LeavesOutSchedulesThatCannotBeSimulated) {
  Setting setting = {
      {"deep", 7 * 1021, 4, 1, 1, 10}, *OwnEngine("fp32"), MakeCluster(1e12)};
  StepModel steps = *StepModel::Create(setting);
  SearchConfig config = Ranks(1021, 3 * 1021);
  config.zero_stages = {0};
  config.schedules = {"interleaved_1f1b"};
  const auto result = Search(steps, config);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->best.size(), 1u);
  EXPECT_EQ(result->best[0].layout.MeshName(), "dp 1021");
  EXPECT_EQ(result->left_out, 2) << "with recomputation and without";
  EXPECT_THAT(SearchText(*result, setting, "fp32"),
              HasSubstr("Not simulated, though possibly faster: 2 layouts, "
                        "such as pp 1021 (interleaved_1f1b x7, 3063 x 1): "));
}

TEST(SearchTest, NeedsMessagesAcrossNodes) {
  Setting setting = MakeSetting();
  NetworkModel& network = setting.cluster.network;
  network.across_hosts = {*network.Find("all_reduce")};
  StepModel steps = *StepModel::Create(setting);
  EXPECT_TRUE(Search(steps, Ranks(4, 4)).ok());
  const absl::Status status = Search(steps, Ranks(8, 8)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--devices_per_node=8"));
}

TEST(SearchTest, GroupsAlongTpStayWithinANode) {
  Setting setting = MakeSetting();
  setting.model.heads = 24;
  setting.model.width = 240;
  setting.cluster.devices_per_node = 8;
  StepModel steps = *StepModel::Create(setting);
  const auto has_tp_3 = [&](int64_t ranks) {
    SearchConfig config = Ranks(ranks, ranks);
    config.schedules = {"1f1b"};
    config.zero_stages = {0};
    config.best = 1000;
    const SearchResult result = *Search(steps, config);
    return std::any_of(
        result.best.begin(), result.best.end(),
        [](const Step& planned) { return planned.layout.tp == 3; });
  };
  EXPECT_TRUE(has_tp_3(6));
  EXPECT_FALSE(has_tp_3(24));
}

TEST(OutputTest, HasARowPerMeshAndABarPerSize) {
  const Setting setting = MakeSetting();
  StepModel steps = *StepModel::Create(setting);
  const std::vector<SearchResult> results = {*Search(steps, Ranks(1, 4)),
                                             *Search(steps, Ranks(4, 16))};
  const std::string text = SearchText(results[1], setting, "fp32");
  EXPECT_THAT(text, HasSubstr("4 ranks, 16 examples a step"));
  EXPECT_THAT(text, HasSubstr("is the fastest"));
  EXPECT_THAT(text, HasSubstr("//trainers:"));
  const std::string chart = ScalingChart(results);
  EXPECT_THAT(chart, HasSubstr("      1 |#####"));
  EXPECT_THAT(chart, HasSubstr("100.0 %"));
}

}  // namespace
}  // namespace rankwise::plan
