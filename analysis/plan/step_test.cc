#include "analysis/plan/step.h"

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

// Computation takes 1 ns per 1000 FLOPs; links as stated.
Cluster MakeCluster(const StatedLinks& links) {
  Cluster cluster;
  cluster.name = "test";
  cluster.device.peak_flops = 1e12;
  cluster.device.memory_bytes = 1e15;
  cluster.devices_per_node = 8;
  cluster.network = StatedNetwork(links);
  cluster.deviation = 0.1;
  return cluster;
}

constexpr StatedLinks kFree = {1e-15, 1e20, 1e-15, 1e20};
constexpr StatedLinks kSlow = {1e-5, 5e9, 5e-5, 2e9};

// A head as expensive as a block allows equal stages.
Model EvenModel() { return {"even", 8, 512, 8, 128, 6144 + 128}; }

StepModel MakeSteps(const Model& model, const StatedLinks& links) {
  return *StepModel::Create({model, *OwnEngine("fp32"), MakeCluster(links)});
}

double SumOf(const StepParts& parts) {
  return parts.compute + parts.recompute + parts.update + parts.tp + parts.cp +
         parts.pp + parts.dp + parts.bubble;
}

TEST(StepTest, OneRankComputesTheModelsFlops) {
  const Model model = EvenModel();
  StepModel steps = MakeSteps(model, kFree);
  const Step step =
      *steps.PredictInDetail({.micro_batch = 2, .micro_batches = 3});
  // Causal attention skips half of the pairs; its backward takes 2.5 times its
  // forward.
  const double attention = 8 * 4.0 * 128 * 128 * 512;
  const double flops =
      6 * (3 * model.ForwardFlops() - 3 * attention + 0.5 * 3.5 * attention);
  EXPECT_NEAR(step.step_seconds, flops / 1e12, 1e-9);
  EXPECT_NEAR(step.mfu, 6 * 3 * model.ForwardFlops() / 1e12 / step.step_seconds,
              1e-9);
  EXPECT_EQ(step.limit, "compute");
}

TEST(StepTest, APipelinesBubbleIsThatOfItsSchedule) {
  StepModel steps = MakeSteps(EvenModel(), kFree);
  const Step step = *steps.PredictInDetail({.pp = 3, .micro_batches = 6});
  // Three stages of three layers: (p - 1) / (m + p - 1), except that the head's
  // FLOPs differ from a block's by attention.
  EXPECT_NEAR(step.parts.bubble / step.step_seconds, 2.0 / 8, 0.01);
  EXPECT_NEAR(step.parts.pp, 0, 1e-9);
  EXPECT_THAT(step.limit, ::testing::StartsWith("bubble"));
}

TEST(StepTest, MessagesTakeTheirTimeFromTheCoresThatCarryThem) {
  // Half of a step of two stages: 10 us and 0.2 ns/B.
  const Layout layout{.pp = 2, .micro_batch = 4, .micro_batches = 4};
  Setting setting = {EvenModel(), *OwnEngine("fp32"), MakeCluster(kSlow)};
  const double apart = StepModel::Create(setting)->Quick(layout)->step_seconds;
  setting.cluster.speed_during_communication = 0;
  const double shared = StepModel::Create(setting)->Quick(layout)->step_seconds;
  const double message = 1e-5 + 4.0 * 4 * 128 * 512 / 5e9;
  // Each of 4 micro-batches forward and backward, and one more of each in the
  // bubble.
  EXPECT_NEAR(shared - apart, 10 * message, 0.5 * message);
}

// As on a loaded machine.
TEST(StepTest, ASmallMessageMayHaveBeenMeasuredToTakeLonger) {
  Cluster cluster = MakeCluster(kFree);
  for (CollectiveCosts& costs : cluster.network.collectives) {
    if (costs.collective != "ping_pong") continue;
    costs.curves.front().points = {{1, 2e-3, {1e-3, 3e-3}},
                                   {1e9, 1e-3, {1e-3, 1e-3}}};
  }
  StepModel steps =
      *StepModel::Create({EvenModel(), *OwnEngine("fp32"), cluster});
  const Layout layout{.pp = 2, .micro_batches = 4};
  EXPECT_GT(
      steps.PredictInDetail(layout)->step_seconds,
      MakeSteps(EvenModel(), kFree).PredictInDetail(layout)->step_seconds);
}

TEST(StepTest, RanksThatWaitLeaveTheirCoresToOthers) {
  const Layout layout{.pp = 3, .micro_batches = 4};
  Setting setting = {EvenModel(), *OwnEngine("fp32"), MakeCluster(kFree)};
  const double alone = StepModel::Create(setting)->Quick(layout)->step_seconds;
  const double bubble =
      StepModel::Create(setting)->PredictInDetail(layout)->parts.bubble;
  // On half of the cores, the work takes as long as if ranks never waited,
  // which they do for 2 of 6 parts of the time.
  setting.cluster.device.peak_flops /= 2;
  setting.cluster.slowdown_by_others = 2;
  const double shared = StepModel::Create(setting)->Quick(layout)->step_seconds;
  EXPECT_NEAR(shared, 2 * (alone - bubble), 0.1 * alone);
  // With their own cores they get no faster.
  setting.cluster.slowdown_by_others = 1.1;
  EXPECT_NEAR(StepModel::Create(setting)->Quick(layout)->step_seconds,
              2 * alone / 1.1, 1e-6 * alone);
}

TEST(StepTest, PartsAddUp) {
  StepModel steps = MakeSteps(EvenModel(), kSlow);
  const Layout layouts[] = {
      {.dp = 4, .micro_batches = 2},
      {.dp = 4, .zero = 3, .micro_batches = 2},
      {.pp = 2, .dp = 2, .cp = 2, .tp = 2, .micro_batches = 4},
      {.pp = 4,
       .schedule = "interleaved_1f1b",
       .chunks = 2,
       .micro_batches = 8,
       .recompute = Recompute::kFull}};
  for (const Layout& layout : layouts) {
    const Step step = *steps.PredictInDetail(layout);
    EXPECT_NEAR(SumOf(step.parts), step.step_seconds, 0.02 * step.step_seconds)
        << layout.MeshName();
    EXPECT_LT(step.step_interval.low, step.step_seconds);
    EXPECT_GT(step.step_interval.high, step.step_seconds);
  }
}

TEST(StepTest, ExposedCommunicationIsThatOfTheAxis) {
  StepModel steps = MakeSteps(EvenModel(), kSlow);
  const StepParts tp = steps.PredictInDetail({.tp = 8})->parts;
  EXPECT_GT(tp.tp, 0);
  EXPECT_EQ(tp.cp + tp.dp, 0);
  const StepParts cp = steps.PredictInDetail({.cp = 8})->parts;
  EXPECT_GT(cp.cp, 0);
  EXPECT_EQ(cp.tp, 0);
  const StepParts dp = steps.PredictInDetail({.dp = 8})->parts;
  EXPECT_GT(dp.dp, 0);
  EXPECT_EQ(dp.tp + dp.cp + dp.pp, 0);
  const StepParts pp =
      steps.PredictInDetail({.pp = 4, .micro_batches = 4})->parts;
  EXPECT_GT(pp.pp, 0);
  EXPECT_EQ(pp.tp + pp.cp + pp.dp, 0);
}

// A byte costs half to twice the value stated by `links`.
Cluster MakeClusterOfUnsureLinks(const StatedLinks& links) {
  Cluster cluster = MakeCluster(links);
  for (CollectiveCosts& costs : cluster.network.collectives) {
    CostLine& line = costs.curves.front().line;
    line.beta_interval = {line.beta_seconds_per_byte / 2,
                          2 * line.beta_seconds_per_byte};
  }
  cluster.deviation = 0;
  return cluster;
}

TEST(StepTest, ExposedCommunicationIsAsUnsureAsItsCosts) {
  Model model = EvenModel();
  model.tied_head = false;  // its exchange belongs to no axis
  StepModel steps = *StepModel::Create(
      {model, *OwnEngine("fp32"), MakeClusterOfUnsureLinks(kSlow)});
  using Axis = std::pair<double StepParts::*, Interval ExposedIntervals::*>;
  const Axis axes[] = {{&StepParts::tp, &ExposedIntervals::tp},
                       {&StepParts::cp, &ExposedIntervals::cp},
                       {&StepParts::pp, &ExposedIntervals::pp},
                       {&StepParts::dp, &ExposedIntervals::dp}};
  // The layout with cp reduces gradients, too.
  const Layout layouts[] = {
      {.tp = 8}, {.cp = 8}, {.pp = 4, .micro_batches = 4}, {.dp = 8}};
  for (size_t along = 0; along < 4; ++along) {
    const Step step = *steps.PredictInDetail(layouts[along]);
    EXPECT_GT(step.parts.*axes[along].first, 0) << along;
    double shorter = 0, longer = 0;
    for (const auto& [part, of_axis] : axes) {
      const Interval& interval = step.exposed.*of_axis;
      const double exposed = step.parts.*part;
      EXPECT_LE(interval.low, 0.99 * exposed) << along;
      EXPECT_GE(interval.high, 1.01 * exposed) << along;
      if (exposed == 0) {
        EXPECT_EQ(interval.high, 0) << along;
      }
      shorter += exposed - interval.low;
      longer += interval.high - exposed;
    }
    EXPECT_NEAR(step.step_seconds - step.step_interval.low, shorter,
                1e-9 * step.step_seconds)
        << along;
    EXPECT_NEAR(step.step_interval.high - step.step_seconds, longer,
                1e-9 * step.step_seconds)
        << along;
  }
}

TEST(StepTest, IntervalsGrowWithTheClustersDeviation) {
  StepModel steps = MakeSteps(EvenModel(), kSlow);
  const Step step = *steps.PredictInDetail({.tp = 8});
  EXPECT_NEAR(step.exposed.tp.low, (1 - 0.196) * step.parts.tp, 1e-12);
  EXPECT_NEAR(step.exposed.tp.high, (1 + 0.196) * step.parts.tp, 1e-12);
  EXPECT_NEAR(step.mfu_interval.low, step.mfu / (1 + 0.196), 1e-12);
  EXPECT_NEAR(step.mfu_interval.high, step.mfu / (1 - 0.196), 1e-12);

  Setting unsure = steps.setting();
  unsure.cluster.deviation = 1;
  EXPECT_TRUE(std::isinf(StepModel::Create(unsure)
                             ->PredictInDetail({.tp = 8})
                             ->mfu_interval.high));
}

// Devices are faster or slower than planned, unknown to the planner: gradients
// are mostly exposed, nearly hidden, and hidden except for the last bucket.
TEST(StepTest, IntervalsOfExposedPartsCoverDevicesOfOtherSpeed) {
  constexpr int kTrials = 400;
  for (const int64_t micro_batch : {2, 6, 16}) {
    const Layout layout{.dp = 8, .micro_batch = micro_batch};
    const Setting planned = {EvenModel(), *OwnEngine("fp32"),
                             MakeCluster(kSlow)};
    const Step step = *StepModel::Create(planned)->PredictInDetail(layout);
    std::mt19937_64 random(4);
    std::normal_distribution<double> normal;
    int steps = 0, parts = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      Setting real = planned;
      real.cluster.device.peak_flops *= std::exp(0.1 * normal(random));
      const Step truth = *StepModel::Create(real)->PredictInDetail(layout);
      steps += step.step_interval.low <= truth.step_seconds &&
               truth.step_seconds <= step.step_interval.high;
      parts += step.exposed.dp.low <= truth.parts.dp &&
               truth.parts.dp <= step.exposed.dp.high;
    }
    std::printf("micro-batch %d: step %.1f %%, exposed dp %.1f %%\n",
                static_cast<int>(micro_batch), 100.0 * steps / kTrials,
                100.0 * parts / kTrials);
    EXPECT_GE(steps, 0.93 * kTrials);
    EXPECT_GE(parts, 0.93 * kTrials);
  }
}

TEST(StepTest, ReplicasAllReduceWhileBackwardRuns) {
  StepModel free = MakeSteps(EvenModel(), kFree);
  StepModel slow = MakeSteps(EvenModel(), kSlow);
  const Layout layout{.dp = 8, .micro_batch = 16};
  const double all_reduce =
      14 * (1e-5 + 4 * EvenModel().Parameters() / 8 / 5e9);
  const double exposed = slow.PredictInDetail(layout)->parts.dp;
  EXPECT_LT(exposed, 0.9 * all_reduce);
  EXPECT_NEAR(slow.PredictInDetail(layout)->step_seconds,
              free.PredictInDetail(layout)->step_seconds + exposed, 1e-6);
}

TEST(StepTest, ARingSendsKeysOnceForwardAndWithTheirGradientsBackward) {
  Setting setting = {EvenModel(), *OwnEngine("fp32"), MakeCluster(kSlow)};
  setting.cluster.speed_during_communication = 0;  // so that nothing is hidden
  setting.model.tied_head = false;
  StepModel steps = *StepModel::Create(setting);
  const Layout layout{.cp = 4, .micro_batch = 8};
  const double message = 1e-5 + 4.0 * 2 * 8 * 128 / 4 * 512 / 5e9;
  // 3 messages in forward; 3 of keys and 4 of gradients in backward.
  EXPECT_NEAR(steps.PredictInDetail(layout)->parts.cp, 8 * 10 * message, 1e-9);
}

TEST(StepTest, Zero3OfAPipelineWaitsForTheGathersThatNothingHides) {
  Setting setting = {EvenModel(), *OwnEngine("fp32"), MakeCluster(kSlow)};
  setting.model.tied_head = false;
  StepModel slow = *StepModel::Create(setting);
  const Layout layout{
      .pp = 2, .dp = 2, .zero = 3, .micro_batch = 16, .micro_batches = 4};
  Layout whole = layout;
  whole.zero = 2;
  const double block = 1e-5 + 4 * EvenModel().BlockParameters() / 5e9 / 2;
  // The last stage waits for its first block and, as the norm before it is too
  // short to hide it, for the head; in backward, for the head and its last
  // block.
  const double waits = 4 * 4 * block;
  EXPECT_NEAR(
      slow.Quick(layout)->step_seconds - slow.Quick(whole)->step_seconds, waits,
      0.1 * waits);
}

TEST(StepTest, TheFirstRankAndTheLastExchangeATiedWeight) {
  Model untied = EvenModel();
  untied.tied_head = false;
  StepModel with = MakeSteps(EvenModel(), kSlow);
  StepModel without = MakeSteps(untied, kSlow);
  const auto exchange = [&](const Layout& layout) {
    return with.Quick(layout)->step_seconds -
           without.Quick(layout)->step_seconds;
  };
  const auto all_reduce = [](double bytes) { return 2e-5 + bytes / 5e9; };
  const double bytes = 4.0 * (6144 + 128) * 512;
  Layout layout{.pp = 2, .micro_batch = 4, .micro_batches = 4};
  EXPECT_NEAR(exchange(layout), all_reduce(bytes), 1e-9);
  layout.dp = 2;
  layout.zero = 1;
  EXPECT_NEAR(exchange(layout), all_reduce(bytes / 2), 1e-9);
  // Both uses are on the first rank.
  EXPECT_NEAR(exchange({.pp = 2,
                        .schedule = "zbv",
                        .chunks = 2,
                        .micro_batch = 4,
                        .micro_batches = 4}),
              0, 1e-9);
}

TEST(StepTest, ARankWithBothUsesOfATiedWeightReducesItOnce) {
  Model untied = EvenModel();
  untied.tied_head = false;
  Layout zbv{.pp = 2,
             .dp = 2,
             .schedule = "zbv",
             .chunks = 2,
             .micro_batch = 4,
             .micro_batches = 4};
  // So slow that reductions are not hidden at all.
  constexpr StatedLinks kSlowest = {1e-5, 5e6, 5e-5, 2e6};
  const double tied =
      MakeSteps(EvenModel(), kSlowest).PredictInDetail(zbv)->parts.dp;
  const double both =
      MakeSteps(untied, kSlowest).PredictInDetail(zbv)->parts.dp;
  const double head = 4.0 * (6144 + 128) * 512 / 5e6;
  EXPECT_NEAR(both - tied, head, 0.01 * head);
}

TEST(StepTest, WhatZero3WaitsForInAPipelineIsAlongDp) {
  StepModel steps = MakeSteps(EvenModel(), kSlow);
  Layout layout{
      .pp = 2, .dp = 2, .zero = 3, .micro_batch = 4, .micro_batches = 4};
  const Step step = *steps.PredictInDetail(layout);
  EXPECT_NEAR(SumOf(step.parts), step.step_seconds, 0.02 * step.step_seconds);
  layout.zero = 2;
  const Step stays = *steps.PredictInDetail(layout);
  EXPECT_GT(step.parts.dp,
            stays.parts.dp + 0.8 * (step.step_seconds - stays.step_seconds));
  EXPECT_NEAR(step.parts.bubble, stays.parts.bubble, 0.1 * stays.parts.bubble);
}

TEST(StepTest, RecomputationRunsTheHeadAgainToo) {
  StepModel steps = MakeSteps(EvenModel(), kFree);
  Layout layout{.pp = 2, .micro_batches = 4};
  const Step kept = *steps.PredictInDetail(layout);
  layout.recompute = Recompute::kFull;
  const Step again = *steps.PredictInDetail(layout);
  // Each forward runs twice: 4 parts of work instead of 3.
  EXPECT_NEAR(again.step_seconds / kept.step_seconds, 4.0 / 3, 0.02);
}

// Caches must not leak from one layout to another.
TEST(StepTest, AStepDoesNotDependOnTheLayoutsBeforeIt) {
  Setting setting = {EvenModel(), *OwnEngine("bf16"), MakeCluster(kSlow)};
  setting.cluster.device.memory_bytes_per_second = 1e11;
  const Layout sharded{.dp = 2, .zero = 1, .recompute = Recompute::kFull},
      replicas{.dp = 2, .micro_batches = 4};
  Layout stages = sharded, once = replicas, pipeline = replicas;
  stages.pp = pipeline.pp = 2;
  once.micro_batches = 1;
  const std::vector<Layout> layouts = {sharded, stages,   replicas,
                                       once,    pipeline, sharded};
  StepModel forward = *StepModel::Create(setting),
            backward = *StepModel::Create(setting);
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (auto& [steps, layout] :
         {std::pair<StepModel*, Layout>(&forward, layouts[i]),
          {&backward, layouts[layouts.size() - 1 - i]}}) {
      EXPECT_EQ(steps->Quick(layout)->step_seconds,
                StepModel::Create(setting)->Quick(layout)->step_seconds)
          << layout.FullName();
    }
  }
}

// Returns any schedule, mesh and option; the engine may reject it.
Layout RandomLayout(std::mt19937& random,
                    const std::vector<int64_t>& micro_batches) {
  const auto choose = [&random](const std::vector<int64_t>& values) {
    return values[random() % values.size()];
  };
  const std::vector<std::string> schedules = {
      "1f1b",           "interleaved_1f1b", "gpipe",
      "zero_bubble_h1", "zero_bubble_h2",   "zbv",
      "naive"};
  Layout layout{.pp = choose({1, 2, 3, 4}),
                .dp = choose({1, 2, 8}),
                .cp = choose({1, 2}),
                .tp = choose({1, 2, 4})};
  layout.zero = static_cast<int>(choose({0, 1, 2, 3}));
  layout.schedule = schedules[random() % schedules.size()];
  layout.chunks =
      layout.schedule == "zbv" || layout.schedule == "interleaved_1f1b" ? 2 : 1;
  if (layout.pp == 1) {
    layout.schedule = "1f1b";
    layout.chunks = 1;
  }
  layout.micro_batches = choose(micro_batches);
  layout.recompute = random() % 2 == 0 ? Recompute::kFull : Recompute::kNone;
  layout.sequence_parallel = layout.tp > 1 && random() % 2 == 0;
  return layout;
}

// Checks the search's bound with every schedule, mesh and option.
TEST(StepTest, NoLayoutIsFasterThanItsBound) {
  std::mt19937 random(7);
  for (const StatedLinks& links : {kFree, kSlow}) {
    StepModel steps = MakeSteps(EvenModel(), links);
    int tried = 0;
    for (int i = 0; i < 600; ++i) {
      const Layout layout = RandomLayout(random, {1, 2, 4, 7, 12});
      const auto step = steps.Quick(layout);
      if (!step.ok()) continue;
      ++tried;
      EXPECT_LE(*steps.LeastSeconds(layout), step->step_seconds * (1 + 1e-9))
          << layout.FullName();
      EXPECT_LE(*steps.LeastBytes(layout), step->memory.sum() * (1 + 1e-9))
          << layout.FullName();
      EXPECT_LE(steps.WithoutMessages(layout)->sum(),
                step->memory.sum() * (1 + 1e-9))
          << layout.FullName();
    }
    EXPECT_GT(tried, 200);
  }
}

TEST(StepTest, AnExtrapolatedStepIsThatOfTheWholeSchedule) {
  constexpr int64_t kInFull = 1 << 20;
  std::mt19937 random(11);
  // The second model has stages of unequal cost.
  for (const Model& model : {EvenModel(), Model{"odd", 7, 512, 8, 128, 9000}}) {
    for (const StatedLinks& links : {kFree, kSlow}) {
      const Setting setting = {model, *OwnEngine("fp32"), MakeCluster(links)};
      StepModel extrapolated = *StepModel::Create(setting, 128),
                simulated = *StepModel::Create(setting, kInFull);
      int tried = 0;
      for (int i = 0; i < 150; ++i) {
        const Layout layout = RandomLayout(random, {129, 250, 1001});
        const auto step = extrapolated.PredictInDetail(layout);
        if (!step.ok()) continue;
        ++tried;
        SCOPED_TRACE(layout.FullName());
        const Step whole = *simulated.PredictInDetail(layout);
        const double near = 1e-9 * whole.step_seconds;
        EXPECT_NEAR(step->step_seconds, whole.step_seconds, near);
        EXPECT_NEAR(step->parts.pp, whole.parts.pp, near);
        EXPECT_NEAR(step->parts.dp, whole.parts.dp, near);
        EXPECT_NEAR(step->parts.bubble, whole.parts.bubble, near);
        EXPECT_NEAR(step->step_interval.high, whole.step_interval.high, near);
        EXPECT_NEAR(step->memory.sum(), whole.memory.sum(),
                    1e-9 * whole.memory.sum());
      }
      EXPECT_GT(tried, 50);
    }
  }
}

TEST(StepTest, RefusesWhatTheEngineRefuses) {
  StepModel steps = MakeSteps(EvenModel(), kFree);
  const std::pair<Layout, const char*> cases[] = {
      {{.tp = 3}, "tp 3 does not divide 8 heads"},
      {{.cp = 3}, "does not divide 128 tokens"},
      {{.pp = 9}, "9 stages of 8 blocks"},
      {{.zero = 1}, "ZeRO needs dp above 1"},
      {{.recompute = Recompute::kFull}, "recomputation needs ZeRO, pp, cp"},
      {{.dp = 2, .recompute = Recompute::kFull}, "single and ddp have none"},
      {{.dp = 2, .zero = 3, .schedule = "zbv"}, "splits backward"}};
  for (const auto& [layout, message] : cases) {
    EXPECT_THAT(std::string(steps.Quick(layout).status().message()),
                ::testing::HasSubstr(message));
  }
  // Megatron-LM recomputes in replicas, too.
  EXPECT_TRUE(CheckLayout(EvenModel(), {.dp = 2, .recompute = Recompute::kFull},
                          Megatron2021())
                  .ok());
}

}  // namespace
}  // namespace rankwise::plan
