// Steps over several hosts, predicted from one host's runs and a known link
// between hosts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/prediction.h"
#include "analysis/prediction/runs_for_test.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr double kAlpha[] = {20e-6, 60e-6};  // within a host, between hosts
constexpr double kBeta[] = {0.1e-9, 8e-9};   // 1 Gbit/s

// A run of ddp whose all-reduces are rings of messages.
RunTrace RunOf(int64_t ranks, int64_t hosts, int repetition, uint64_t seed) {
  DdpRunForTest config{.world_size = ranks, .hosts = hosts};
  const double n = static_cast<double>(ranks);
  config.alpha_seconds = 2 * (n - 1) * kAlpha[hosts > 1];
  config.beta_seconds_per_byte = 2 * (n - 1) / n * kBeta[hosts > 1];
  std::mt19937_64 random(seed * 1000 + ranks * 10 + repetition);
  std::normal_distribution<double> normal(0, 3e-4);
  const double of_run = normal(random);
  config.jitter_seconds.clear();
  for (int i = 0; i < 41; ++i)
    config.jitter_seconds.push_back(of_run + std::abs(normal(random)));
  config.run_id =
      "ddp-x" + std::to_string(ranks) + "-" + std::to_string(repetition);
  return MakeDdpRun(config);
}

// The costs of one host's all-reduces, and the link.
NetworkModel Network() {
  NetworkModel network = FlatNetwork(0, 0);
  network.collectives[0].collective = "all_reduce";
  network.collectives[0].growth = Growth::kRing;
  CostCurve& curve = network.collectives[0].curves[0];
  curve.line.alpha_seconds = 2 * kAlpha[0];
  curve.line.beta_seconds_per_byte = kBeta[0];
  curve.line.alpha_interval = {2 * kAlpha[0], 2 * kAlpha[0]};
  curve.line.beta_interval = {kBeta[0], kBeta[0]};
  network.across_hosts = LinkAcrossHosts(kAlpha[1], kBeta[1]);
  return network;
}

TEST(Hosts, StepsOverThemAreThoseOfTheTruth) {
  int points = 0, covered = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::vector<RunTrace> runs;
    for (int repetition = 0; repetition < 3; ++repetition) {
      runs.push_back(RunOf(2, 1, repetition, seed));
      for (const int64_t hosts : {2, 3, 4})
        runs.push_back(RunOf(2 * hosts, hosts, repetition, seed));
    }
    std::vector<std::string> left_out;
    const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
    const auto score = ScorePredictions(runs, cells, 2, Network(), {});
    ASSERT_TRUE(score.ok()) << score.status();
    ASSERT_EQ(score->points.size(), 3u);
    for (const ScoredPrediction& point : score->points) {
      EXPECT_LT(std::abs(point.Error()), 0.02)
          << point.prediction.layout.Name();
      EXPECT_GT(point.prediction.link_seconds,
                0.3 * point.prediction.step_seconds);
      ++points;
      covered += point.IsCovered();
    }
  }
  std::cout << "  " << covered << " of " << points << " covered\n";
  EXPECT_GE(covered, 0.9 * points);
}

TEST(Hosts, ThePredictionSaysWhatTheLinkCosts) {
  const std::vector<RunTrace> runs = {RunOf(1, 1, 0, 1), RunOf(2, 1, 0, 1)};
  auto predictor = RecordedPredictor::Create(runs, Network(), {});
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  Layout layout = {.dp = 8, .micro_batch = 64, .ranks_per_host = 2};
  const auto flat = predictor->Predict(layout);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_THAT(flat->assumptions,
              Contains(HasSubstr("2 ranks, as many as on each host")));
  EXPECT_THAT(flat->assumptions,
              Contains(HasSubstr(
                  "a ring of 8 ranks, host by host; the cost of the link "
                  "between hosts is taken from messages between hosts")));
  EXPECT_THAT(PredictionTable({*flat}),
              HasSubstr("The link between hosts limits ddp x8 on 4 hosts: "));
  layout.hierarchical = true;
  const auto hierarchical = predictor->Predict(layout);
  ASSERT_TRUE(hierarchical.ok()) << hierarchical.status();
  EXPECT_EQ(hierarchical->layout.Name(), "ddp x8 on 4 hosts, hierarchical");
  // 6 MB: 84 ms of the link in 14 messages of a rank's part, or 72 ms in 6
  // messages of a host's part, and less than 1 ms within hosts.
  EXPECT_NEAR(flat->exposed_comm_seconds - hierarchical->exposed_comm_seconds,
              0.012, 0.002);
  layout.ranks_per_host = 8;
  const auto one_host = predictor->Predict(layout);
  ASSERT_TRUE(one_host.ok()) << one_host.status();
  EXPECT_EQ(one_host->layout.Name(), "ddp x8");
  EXPECT_EQ(LinkSentence(*one_host), "");
}

TEST(Hosts, ALinkThatIsNotKnownIsAskedFor) {
  NetworkModel network = Network();
  network.across_hosts.clear();
  const std::vector<RunTrace> runs = {RunOf(2, 1, 0, 1)};
  auto predictor = RecordedPredictor::Create(runs, network, {});
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  const auto prediction =
      predictor->Predict({.dp = 4, .micro_batch = 64, .ranks_per_host = 2});
  EXPECT_THAT(std::string(prediction.status().message()),
              HasSubstr("all_reduce across hosts"));
}

TEST(Hosts, PipelinesPassTheirMessagesOverTheLink) {
  PipelineRunForTest config;
  const std::vector<RunTrace> runs = {MakePipelineRun(config)};
  NetworkModel network = FlatNetwork(0, 0);
  network.across_hosts = LinkAcrossHosts(0, 8e-9);
  auto predictor = RecordedPredictor::Create(runs, network, {});
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  Layout layout = {
      .pp = 2, .schedule = "1f1b", .micro_batch = 16, .micro_batches = 4};
  const double near = predictor->Predict(layout)->step_seconds;
  layout.ranks_per_host = 1;
  const auto far = predictor->Predict(layout);
  ASSERT_TRUE(far.ok()) << far.status();
  // 1 MB takes 8 ms, for which the first forward and the last backward wait.
  EXPECT_GT(far->step_seconds, near + 0.015);
  EXPECT_THAT(far->assumptions,
              Contains(HasSubstr("as much as one between hosts")));
}

}  // namespace
}  // namespace rankwise
