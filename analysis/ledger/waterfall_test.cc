#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "analysis/ledger/cells_for_test.h"
#include "analysis/ledger/ledger.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PartsForTest Always(const LedgerParts& parts) {
  return [parts](int64_t, int64_t) { return parts; };
}

PartsForTest ByRank(const std::vector<LedgerParts>& parts) {
  return [parts](int64_t rank, int64_t) { return parts[rank]; };
}

// Returns milliseconds by cause.
std::map<LossCause, double> Losses(const Waterfall& waterfall) {
  std::map<LossCause, double> losses;
  for (const Loss& loss : waterfall.losses) {
    losses[loss.cause] = 1e3 * loss.seconds;
  }
  return losses;
}

Waterfall Explain(const StudyForTest& study, const CellLedger& base,
                  const CellLedger& cell, Scaling scaling) {
  const auto waterfall = ExplainLoss(study.ledgers, base, cell, scaling);
  EXPECT_TRUE(waterfall.ok()) << waterfall.status();
  return waterfall.ok() ? *waterfall : Waterfall();
}

void ExpectClosed(const Waterfall& waterfall) {
  double seconds = 0, points = 0;
  for (const Loss& loss : waterfall.losses) {
    seconds += loss.seconds;
    points += loss.efficiency_points;
    EXPECT_NE(loss.seconds, 0) << LossName(loss.cause);
  }
  EXPECT_NEAR(waterfall.ideal_seconds + seconds, waterfall.measured_seconds,
              1e-12);
  const auto efficiency =
      CompareToBase(*waterfall.base, *waterfall.cell, waterfall.scaling);
  ASSERT_TRUE(efficiency.ok()) << efficiency.status();
  EXPECT_NEAR(points, 1 - efficiency->efficiency, 1e-12);
}

const CellForTest kSingle32 = {{.binary = "single", .batch_size = 32},
                               Always({0.040, 0, 0, 0.001, 0})};
const CellForTest kSingle16 = {{.binary = "single", .batch_size = 16},
                               Always({0.024, 0, 0, 0.001, 0})};
const CellForTest kDdp16 = {{.world_size = 2, .batch_size = 16},
                            ByRank({{0.030, 0.009, 0, 0.0015, 0.0005},
                                    {0.034, 0.005, 0, 0.0015, 0.0005}})};
const CellForTest kAlone16 = {
    {.world_size = 2, .batch_size = 16},
    ByRank({{0.027, 0, 0, 0.0015, 0.0005}, {0.029, 0, 0, 0.0015, 0.0005}}),
    {{"skip_communication", "true"}}};

TEST(WaterfallTest, TellsEveryCauseApart) {
  const StudyForTest study({kSingle32, kSingle16, kDdp16, kAlone16});
  const Waterfall waterfall =
      Explain(study, study.Find("single", 1, 32), study.Find("ddp", 2, 16),
              Scaling::kStrong);
  ExpectClosed(waterfall);
  EXPECT_NEAR(waterfall.ideal_seconds, 0.0205, 1e-12);
  EXPECT_NEAR(waterfall.measured_seconds, 0.041, 1e-12);
  EXPECT_THAT(waterfall.merged, IsEmpty());
  auto losses = Losses(waterfall);
  EXPECT_NEAR(losses[LossCause::kSmallerBatch], 24 - 40 / 2, 1e-9);
  EXPECT_NEAR(losses[LossCause::kSharedMachine], 28 - 24, 1e-9);
  EXPECT_NEAR(losses[LossCause::kCommSlowsCompute], 32 - 28, 1e-9);
  EXPECT_NEAR(losses[LossCause::kExposedDp], 5, 1e-9);
  EXPECT_NEAR(losses[LossCause::kImbalance], 2, 1e-9);
  EXPECT_NEAR(losses[LossCause::kDataWait], 1.5 - 1.0 / 2, 1e-9);
  EXPECT_NEAR(losses[LossCause::kRest], 0.5, 1e-9);
  EXPECT_EQ(waterfall.losses.size(), 7u);
  for (size_t i = 1; i < waterfall.losses.size(); ++i) {
    EXPECT_LT(waterfall.losses[i - 1].cause, waterfall.losses[i].cause);
  }
}

CellForTest Captured(CellForTest cell) {
  cell.captured = true;
  return cell;
}

TEST(WaterfallTest, AnAblationTellsCommunicationFromComputingInCapturedSteps) {
  const StudyForTest study({Captured(kSingle32), Captured(kSingle16),
                            Captured(kDdp16), Captured(kAlone16)});
  const Waterfall waterfall =
      Explain(study, study.Find("single", 1, 32), study.Find("ddp", 2, 16),
              Scaling::kStrong);
  ExpectClosed(waterfall);
  auto losses = Losses(waterfall);
  EXPECT_NEAR(losses[LossCause::kSmallerBatch], 24 - 40 / 2, 1e-9);
  EXPECT_NEAR(losses[LossCause::kSharedMachine], 28 - 24, 1e-9);
  // Both ranks' launches take 39 ms, including waiting and imbalance.
  EXPECT_NEAR(losses[LossCause::kCommInGraph], 39 - 28, 1e-9);
  EXPECT_EQ(losses.count(LossCause::kCommSlowsCompute), 0u);
  EXPECT_EQ(losses.count(LossCause::kExposedDp), 0u);
  EXPECT_THAT(waterfall.merged,
              ElementsAre("communication within captured steps not separated "
                          "from imbalance between ranks, as a step was one "
                          "graph launch: --cuda_graph=false separates them"));
}

TEST(WaterfallTest, WithoutAnAblationCapturedStepsHideCommunication) {
  // The ablation was not captured.
  const StudyForTest study(
      {Captured(kSingle32), Captured(kSingle16), Captured(kDdp16), kAlone16});
  const Waterfall waterfall =
      Explain(study, study.Find("single", 1, 32), study.Find("ddp", 2, 16),
              Scaling::kStrong);
  ExpectClosed(waterfall);
  EXPECT_EQ(Losses(waterfall).count(LossCause::kCommInGraph), 0u);
  EXPECT_THAT(
      waterfall.merged,
      ElementsAre(
          "cores and memory that ranks share not separated from "
          "communication within captured steps, for want of the same run, "
          "captured, with --skip_communication",
          HasSubstr("was one graph launch")));
}

TEST(WaterfallTest, SaysWhereOnlyOneOfTheTwoWasCaptured) {
  const StudyForTest study({Captured(kSingle32), kSingle16, kDdp16, kAlone16});
  const Waterfall waterfall =
      Explain(study, study.Find("single", 1, 32), study.Find("ddp", 2, 16),
              Scaling::kStrong);
  ExpectClosed(waterfall);
  EXPECT_THAT(
      waterfall.merged,
      ElementsAre("the losses include the time saved by capturing a step, as "
                  "single on 1 rank was captured and ddp on 2 ranks "
                  "was not"));
}

TEST(WaterfallTest, SaysWhichRunWouldTellCausesApart) {
  const StudyForTest neither({kSingle32, kDdp16});
  Waterfall waterfall = Explain(neither, neither.Find("single", 1, 32),
                                neither.Find("ddp", 2, 16), Scaling::kStrong);
  ExpectClosed(waterfall);
  EXPECT_NEAR(Losses(waterfall)[LossCause::kSmallerBatch], 12, 1e-9);
  EXPECT_THAT(
      waterfall.merged,
      ElementsAre(
          "smaller batches not separated from cores and memory that ranks "
          "share, as single on 1 rank was not run with --batch_size=16",
          "smaller batches not separated from computing slowed by "
          "communication, for want of the same run with --skip_communication"));

  const StudyForTest no_ablation({kSingle32, kSingle16, kDdp16});
  waterfall = Explain(no_ablation, no_ablation.Find("single", 1, 32),
                      no_ablation.Find("ddp", 2, 16), Scaling::kStrong);
  EXPECT_NEAR(Losses(waterfall)[LossCause::kSmallerBatch], 4, 1e-9);
  EXPECT_NEAR(Losses(waterfall)[LossCause::kSharedMachine], 8, 1e-9);
  EXPECT_THAT(waterfall.merged, ElementsAre(HasSubstr("skip_communication")));

  const StudyForTest no_batch({kSingle32, kDdp16, kAlone16});
  waterfall = Explain(no_batch, no_batch.Find("single", 1, 32),
                      no_batch.Find("ddp", 2, 16), Scaling::kStrong);
  EXPECT_NEAR(Losses(waterfall)[LossCause::kSmallerBatch], 8, 1e-9);
  EXPECT_NEAR(Losses(waterfall)[LossCause::kCommSlowsCompute], 4, 1e-9);
  EXPECT_THAT(waterfall.merged, ElementsAre(HasSubstr("--batch_size=16")));
}

TEST(WaterfallTest, AnAblationThatComputedNoFasterIsANegativeLoss) {
  CellForTest slow_alone = kAlone16;
  slow_alone.parts =
      ByRank({{0.033, 0, 0, 0.0015, 0.0005}, {0.035, 0, 0, 0.0015, 0.0005}});
  const StudyForTest study({kSingle32, kSingle16, kDdp16, slow_alone});
  Waterfall waterfall = Explain(study, study.Find("single", 1, 32),
                                study.Find("ddp", 2, 16), Scaling::kStrong);
  ExpectClosed(waterfall);
  auto losses = Losses(waterfall);
  EXPECT_NEAR(losses[LossCause::kSmallerBatch], 4, 1e-9);
  EXPECT_NEAR(losses[LossCause::kSharedMachine], 34 - 24, 1e-9);
  EXPECT_NEAR(losses[LossCause::kCommSlowsCompute], 32 - 34, 1e-9);
  EXPECT_THAT(waterfall.merged, IsEmpty());
}

// Returns cells whose compute varies between runs by `deviation`. Communication
// adds `slowed` seconds to 30 ms of computation.
std::vector<CellForTest> NoisyCells(double slowed, double deviation,
                                    int repetitions, std::mt19937_64& random) {
  std::vector<CellForTest> cells = {kSingle32, kSingle16, kDdp16, kAlone16};
  const double compute[] = {0.040, 0.024, 0.030 + slowed, 0.030};
  for (size_t i = 0; i < cells.size(); ++i) {
    std::vector<double> by_run;
    for (int run = 0; run < repetitions; ++run) {
      by_run.push_back(compute[i] * (1 + std::normal_distribution<double>(
                                             0, deviation)(random)));
    }
    cells[i].run.steps = kMinMeasuredSteps;
    cells[i].repetitions = repetitions;
    cells[i].parts = Always({});
    cells[i].parts_of_run = [by_run](int run) {
      return Always({by_run[run], 0.002, 0, 0.001, 0});
    };
  }
  return cells;
}

// Estimates of kCommSlowsCompute over simulated studies.
struct Estimates {
  double mean_ms = 0;
  double covered = 0;  // share of the intervals that contain the truth
  double beyond_noise = 0;
};

Estimates Estimate(double slowed, int repetitions) {
  constexpr int kStudies = 300;
  std::mt19937_64 random(repetitions);
  Estimates result;
  for (int i = 0; i < kStudies; ++i) {
    const StudyForTest study(NoisyCells(slowed, 0.02, repetitions, random));
    const Waterfall waterfall =
        Explain(study, study.Find("single", 1, 32), study.Find("ddp", 2, 16),
                Scaling::kStrong);
    ExpectClosed(waterfall);
    for (const Loss& loss : waterfall.losses) {
      if (loss.cause != LossCause::kCommSlowsCompute) continue;
      result.mean_ms += 1e3 * loss.seconds / kStudies;
      result.covered +=
          loss.interval.low <= slowed && slowed <= loss.interval.high;
      result.beyond_noise += !loss.IsWithinNoise();
    }
  }
  result.covered /= kStudies;
  result.beyond_noise /= kStudies;
  std::cout << repetitions << " runs, slowed by " << 1e3 * slowed
            << " ms: on average " << result.mean_ms << " ms, covered in "
            << 100 * result.covered << " %, beyond noise in "
            << 100 * result.beyond_noise << " %\n";
  return result;
}

// Computation takes 30 ms +- 2 % per run. If negative differences were clamped
// to 0, the mean without a loss would be 0.4 standard deviations of the
// difference: 0.15 ms with five runs.
TEST(WaterfallTest, NoLossIsNoneOnAverageAndWithinNoise) {
  for (int repetitions : {2, 3, 5}) {
    const Estimates none = Estimate(0, repetitions);
    const double deviation = 0.6 * std::sqrt(2.0 / repetitions);
    EXPECT_NEAR(none.mean_ms, 0, 3 * deviation / std::sqrt(300.0));
    EXPECT_GE(none.covered, 0.92);
    EXPECT_LE(none.beyond_noise, 0.08);
  }
  const Estimates lost = Estimate(0.003, 5);
  EXPECT_NEAR(lost.mean_ms, 3, 0.1);
  EXPECT_GE(lost.covered, 0.92);
  EXPECT_GE(lost.beyond_noise, 0.95);
}

TEST(WaterfallTest, ALossOfCellsThatRanOnceHasNoInterval) {
  CellForTest once = kDdp16;
  once.repetitions = 1;
  const StudyForTest study({kSingle32, once});
  ComparisonConfig forced;
  forced.force = true;
  const auto waterfall =
      ExplainLoss(study.ledgers, study.Find("single", 1, 32),
                  study.Find("ddp", 2, 16), Scaling::kStrong, forced);
  ASSERT_TRUE(waterfall.ok()) << waterfall.status();
  for (const Loss& loss : waterfall->losses) {
    EXPECT_TRUE(std::isnan(loss.interval.low));
    EXPECT_FALSE(loss.IsWithinNoise());
  }
}

TEST(WaterfallTest, UnderWeakScalingTheBaseHasTheSameBatch) {
  const StudyForTest study({kSingle32,
                            kSingle16,
                            {{.world_size = 4, .batch_size = 32},
                             Always({0.044, 0.006, 0, 0.001, 0})}});
  // `cells` does not contain the base.
  const auto waterfall = ExplainLoss({}, study.Find("single", 1, 32),
                                     study.Find("ddp", 4, 32), Scaling::kWeak);
  ASSERT_TRUE(waterfall.ok()) << waterfall.status();
  ExpectClosed(*waterfall);
  auto losses = Losses(*waterfall);
  EXPECT_EQ(losses.size(), 2u);
  EXPECT_NEAR(losses[LossCause::kSharedMachine], 4, 1e-9);
  EXPECT_NEAR(losses[LossCause::kExposedDp], 6, 1e-9);
}

TEST(WaterfallTest, SeparatesNoiseFromImbalance) {
  // The four steps cover all combinations of two independent ranks; rank 1 is
  // always 3 ms slower, and each is 8 ms slower in half of its steps.
  const auto compute = [](int64_t rank, int64_t step) {
    const bool slow = rank == 0 ? step % 2 == 0 : step % 4 < 2;
    return 0.020 + (rank == 1 ? 0.003 : 0) + (slow ? 0.008 : 0);
  };
  const StudyForTest study(
      {kSingle32,
       {{.world_size = 2, .batch_size = 16}, [&](int64_t rank, int64_t step) {
          const double slowest = std::max(compute(0, step), compute(1, step));
          return LedgerParts{compute(rank, step),
                             slowest - compute(rank, step) + 0.001};
        }}});
  auto losses = Losses(Explain(study, study.Find("single", 1, 32),
                               study.Find("ddp", 2, 16), Scaling::kStrong));
  EXPECT_NEAR(losses[LossCause::kExposedDp], 1, 1e-9);
  EXPECT_NEAR(losses[LossCause::kImbalance], 1.5, 1e-9);
  // Rank 0 is the slowest, by 5 ms, only if rank 1 is not slow.
  EXPECT_NEAR(losses[LossCause::kNoise], 5.0 / 4, 1e-9);
}

TEST(WaterfallTest, APipelineHasSmallerMicroBatchesAndPartOfTheOptimizer) {
  const StudyForTest study(
      {kSingle32,
       {{.binary = "single", .batch_size = 8}, Always({0.015, 0, 0, 0.001, 0})},
       {{.binary = "pipeline",
         .world_size = 2,
         .batch_size = 8,
         .schedule = "1f1b",
         .micro_batches = 4},
        ByRank({{0.028, 0.004, 0.011, 0.0005, 0},
                {0.032, 0.003, 0.008, 0.0005, 0}})}});
  const Waterfall waterfall =
      Explain(study, study.Find("single", 1, 32),
              study.Find("pipeline 1f1b", 2, 8), Scaling::kStrong);
  ExpectClosed(waterfall);
  auto losses = Losses(waterfall);
  // A rank computes 16 examples in passes of 8; the optimizer takes a tenth of
  // 15 ms, of which the rank has half.
  const double alone = 0.9 * 15 * 2 + 0.1 * 15 / 2;
  EXPECT_NEAR(losses[LossCause::kSmallerBatch], alone - 20, 1e-9);
  EXPECT_NEAR(losses[LossCause::kSharedMachine], 30 - alone, 1e-9);
  EXPECT_NEAR(losses[LossCause::kExposedPp], 1.5, 1e-9);
  EXPECT_NEAR(losses[LossCause::kExposedDp], 1.5, 1e-9);
  EXPECT_NEAR(losses[LossCause::kBubble], 8, 1e-9);
  EXPECT_NEAR(losses[LossCause::kImbalance], 2, 1e-9);
  EXPECT_EQ(losses.count(LossCause::kDataWait), 0u);
}

TEST(WaterfallTest, WithZeroARankHasPartOfTheOptimizer) {
  for (const int shard_ranks : {0, 2}) {
    const StudyForTest study(
        {kSingle32,
         {{.binary = "single", .batch_size = 8},
          Always({0.015, 0, 0, 0.001, 0})},
         {.run = {.binary = "fsdp", .world_size = 4, .batch_size = 8},
          .parts = Always({0.016, 0.005, 0, 0.001, 0}),
          .flags = {{"zero", "3"}, {"shard_ranks", absl::StrCat(shard_ranks)}},
          .mesh = {{"dp", 4}}}});
    auto losses =
        Losses(Explain(study, study.Find("single", 1, 32),
                       study.Find("fsdp zero3", 4, 8), Scaling::kStrong));
    // The optimizer of the whole model takes a tenth of 15 ms.
    const double alone = 0.9 * 15 + 0.1 * 15 / (shard_ranks == 0 ? 4 : 2);
    EXPECT_NEAR(losses[LossCause::kSmallerBatch], alone - 10, 1e-9);
    EXPECT_NEAR(losses[LossCause::kSharedMachine], 16 - alone, 1e-9);
  }
}

TEST(WaterfallTest, WhatTheBaseLosesTooIsNoLoss) {
  const StudyForTest study({{{.world_size = 2, .batch_size = 32},
                             Always({0.040, 0.006, 0, 0.002, 0})},
                            {{.world_size = 4, .batch_size = 32},
                             Always({0.040, 0.010, 0, 0.001, 0})}});
  const Waterfall waterfall = Explain(study, study.Find("ddp", 2, 32),
                                      study.Find("ddp", 4, 32), Scaling::kWeak);
  ExpectClosed(waterfall);
  auto losses = Losses(waterfall);
  EXPECT_NEAR(losses[LossCause::kExposedDp], 4, 1e-9);
  EXPECT_NEAR(losses[LossCause::kDataWait], -1, 1e-9);
  EXPECT_EQ(losses.size(), 2u);
}

TEST(WaterfallTest, ClosesWhateverTheCellsHold) {
  std::mt19937_64 random(17);
  std::exponential_distribution<double> draw(50);
  const auto any = [&](int64_t, int64_t) {
    return LedgerParts{draw(random), draw(random), 0, draw(random),
                       draw(random)};
  };
  for (int trial = 0; trial < 20; ++trial) {
    const StudyForTest study(
        {{{.binary = "single", .batch_size = 48}, any, {}, 3},
         {{.binary = "single", .batch_size = 16}, any, {}, 4},
         {{.world_size = 3, .batch_size = 16}, any, {}, 5},
         {{.world_size = 3, .batch_size = 48}, any, {}, 2}});
    ExpectClosed(Explain(study, study.Find("single", 1, 48),
                         study.Find("ddp", 3, 16), Scaling::kStrong));
    ExpectClosed(Explain(study, study.Find("single", 1, 48),
                         study.Find("ddp", 3, 48), Scaling::kWeak));
  }
}

TEST(WaterfallTest, RefusesWhatCannotBeCompared) {
  const StudyForTest study({kSingle32, kDdp16});
  const CellLedger& base = study.Find("single", 1, 32);
  const CellLedger& cell = study.Find("ddp", 2, 16);
  const auto refusal = [&](const CellLedger& a, const CellLedger& b,
                           Scaling scaling) {
    const auto waterfall = ExplainLoss(study.ledgers, a, b, scaling);
    EXPECT_EQ(waterfall.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(waterfall.status().message());
  };
  EXPECT_THAT(refusal(base, cell, Scaling::kWeak), HasSubstr("batch per rank"));
  EXPECT_THAT(refusal(base, {cell.cell, {}}, Scaling::kStrong),
              HasSubstr("ddp on 2 ranks has no ledger"));
  EXPECT_THAT(refusal({}, cell, Scaling::kStrong), HasSubstr("without"));

  CellForTest once = kDdp16;
  once.repetitions = 1;
  const StudyForTest few({kSingle32, once});
  const CellLedger& few_base = few.Find("single", 1, 32);
  const CellLedger& few_cell = few.Find("ddp", 2, 16);
  EXPECT_THAT(refusal(few_base, few_cell, Scaling::kStrong),
              HasSubstr("--repetitions"));
  ComparisonConfig forced;
  forced.force = true;
  EXPECT_TRUE(
      ExplainLoss(few.ledgers, few_base, few_cell, Scaling::kStrong, forced)
          .ok());
}

TEST(WaterfallTest, EveryCauseHasANameAndASentenceThatNamesAFlag) {
  std::set<std::string> names, remedies;
  for (int i = 0; i <= static_cast<int>(LossCause::kRest); ++i) {
    const LossCause cause = static_cast<LossCause>(i);
    names.insert(LossName(cause));
    const std::string remedy = Remedy(cause);
    remedies.insert(remedy);
    EXPECT_THAT(remedy, HasSubstr("--"));
    EXPECT_TRUE(absl::EndsWith(remedy, ".")) << remedy;
    EXPECT_FALSE(absl::StrContains(remedy, ". ")) << remedy;
  }
  EXPECT_EQ(names.size(), 13u);
  EXPECT_EQ(remedies.size(), 13u);
}

const RunForTest kDdp = {.world_size = 2, .batch_size = 16};
const std::map<std::string, std::string> kSkips = {
    {"skip_communication", "true"}};
const std::map<std::string, std::string> kSkipsNot = {
    {"skip_communication", "false"}};

TEST(AblationTest, ComparesWhatWasSavedWithTheLedger) {
  const StudyForTest study(
      {{kDdp, Always({0.034, 0.005, 0, 0.001, 0.001}), kSkipsNot},
       {kDdp, Always({0.030, 0, 0, 0.001, 0.001}), kSkips}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_EQ(ablations[0].cell, study.Find("ddp", 2, 16).cell);
  EXPECT_EQ(ablations[0].without, study.Find("ddp", 2, 16, true).cell);
  EXPECT_NEAR(ablations[0].saved_seconds, 0.009, 1e-12);
  EXPECT_NEAR(ablations[0].exposed_seconds, 0.005, 1e-12);
  EXPECT_EQ(ablations[0].bubble_seconds, 0);
  EXPECT_NEAR(ablations[0].slowed_seconds, 0.004, 1e-12);
  EXPECT_NEAR(ablations[0].disagreement, 0, 1e-9);
  EXPECT_NEAR(ablations[0].exposed_disagreement, 5.0 / 9 - 1, 1e-9);
}

TEST(AblationTest, OfCapturedStepsItTellsTheWholeCostAndTestsNothing) {
  const StudyForTest study(
      {{kDdp, Always({0.034, 0.005, 0, 0.001, 0.001}), kSkipsNot, 2, true},
       {kDdp, Always({0.030, 0, 0, 0.001, 0.001}), kSkips, 2, true}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_TRUE(ablations[0].captured);
  EXPECT_NEAR(ablations[0].saved_seconds, 0.009, 1e-12);
  EXPECT_EQ(ablations[0].exposed_seconds, 0);
  EXPECT_NEAR(ablations[0].slowed_seconds, 0.009, 1e-12);
  EXPECT_TRUE(std::isnan(ablations[0].disagreement));
  EXPECT_TRUE(std::isnan(ablations[0].exposed_disagreement));
}

TEST(AblationTest, FindsAKnownDisagreement) {
  // The ledger reports 6 ms as exposed that communication does not cause: 4 ms
  // of them remain as residual without it.
  const StudyForTest study(
      {{kDdp, Always({0.030, 0.006, 0, 0.001, 0})},
       {kDdp, Always({0.030, 0, 0, 0.001, 0.004}), kSkips}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_NEAR(ablations[0].saved_seconds, 0.002, 1e-12);
  EXPECT_NEAR(ablations[0].disagreement, 2, 1e-9);
  EXPECT_NEAR(ablations[0].exposed_disagreement, 2, 1e-9);
}

TEST(AblationTest, NothingSavedIsNoAgreement) {
  const StudyForTest study(
      {{kDdp, Always({0.030, 0.001})}, {kDdp, Always({0.040}), kSkips}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_LT(ablations[0].saved_seconds, 0);
  EXPECT_TRUE(std::isnan(ablations[0].disagreement));
  EXPECT_TRUE(std::isnan(ablations[0].exposed_disagreement));
}

TEST(AblationTest, APipelineKeepsPartOfItsWaiting) {
  const RunForTest pipeline = {.binary = "pipeline",
                               .world_size = 2,
                               .batch_size = 8,
                               .schedule = "gpipe"};
  const StudyForTest study(
      {{pipeline, Always({0.030, 0.004, 0.012, 0.001, 0})},
       {pipeline, Always({0.029, 0.001, 0.010, 0.001, 0}), kSkips}});
  const std::vector<Ablation> ablations = FindAblations(study.ledgers);
  ASSERT_EQ(ablations.size(), 1u);
  EXPECT_NEAR(ablations[0].saved_seconds, 0.006, 1e-12);
  EXPECT_NEAR(ablations[0].exposed_seconds, 0.003, 1e-12);
  EXPECT_NEAR(ablations[0].bubble_seconds, 0.002, 1e-12);
  EXPECT_NEAR(ablations[0].slowed_seconds, 0.001, 1e-12);
  EXPECT_NEAR(ablations[0].disagreement, 0, 1e-9);
  EXPECT_NEAR(ablations[0].exposed_disagreement, 3.0 / 6 - 1, 1e-9);
}

TEST(AblationTest, OnlyCommunicationMayDiffer) {
  RunForTest larger = kDdp;
  larger.batch_size = 32;
  RunForTest wider = kDdp;
  wider.world_size = 4;
  RunForTest pipeline = {.binary = "pipeline",
                         .world_size = 2,
                         .batch_size = 8,
                         .schedule = "gpipe"};
  RunForTest replicated = pipeline;
  replicated.replicas = 2;
  const PartsForTest any = Always({0.03});
  auto other_lr = kSkips;
  other_lr["lr"] = "0.2";
  auto other_record = kSkips;
  other_record["record"] = "elsewhere.jsonl";
  EXPECT_TRUE(FindAblations(
                  StudyForTest(
                      {{kDdp, any},
                       {larger, any, kSkips},
                       {wider, any, kSkips},
                       {kDdp, any, other_lr},
                       {.run = kDdp, .parts = any, .flags = kSkips, .hosts = 2},
                       {pipeline, any, kSkips},
                       {replicated, any}})
                      .ledgers)
                  .empty());
  EXPECT_EQ(FindAblations(
                StudyForTest({{kDdp, any}, {kDdp, any, other_record}}).ledgers)
                .size(),
            1u);
}

}  // namespace

}  // namespace rankwise
