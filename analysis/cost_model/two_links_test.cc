// Networks of two known links: messages within a host and between hosts, and
// rings of messages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/cost_model/runs_for_test.h"

namespace rankwise {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

struct Link {
  double alpha = 0, beta = 0;
  double Message(double bytes) const { return alpha + beta * bytes; }
  double Ring(double bytes, int64_t ranks) const {
    const double n = static_cast<double>(ranks);
    return 2 * (n - 1) * Message(bytes / n);
  }
};
constexpr Link kWithin = {20e-6, 0.1e-9};
constexpr Link kBetween = {60e-6, 8e-9};  // 1 Gbit/s

BenchRunForTest Bench(const std::string& collective, int64_t ranks,
                      int64_t hosts, uint64_t seed) {
  const Link link = hosts > 1 ? kBetween : kWithin;
  BenchRunForTest run;
  run.collectives = {collective};
  run.world_size = ranks;
  run.hosts = hosts;
  run.seconds = [=](double bytes) {
    return collective == "all_reduce" ? link.Ring(bytes, ranks)
                                      : link.Message(bytes);
  };
  run.noise = {};
  run.seed = seed;
  return run;
}

// Fits all-reduces on one host, and messages over both links.
NetworkModel Fit(uint64_t seed, const std::vector<BenchRunForTest>& more = {}) {
  std::vector<RunTrace> runs = {
      MakeBenchRun(Bench("ping_pong", 2, 1, 10 * seed)),
      MakeBenchRun(Bench("ping_pong", 2, 2, 10 * seed + 1)),
      MakeBenchRun(Bench("all_reduce", 2, 1, 10 * seed + 2)),
      MakeBenchRun(Bench("all_reduce", 4, 1, 10 * seed + 3))};
  for (const BenchRunForTest& run : more) runs.push_back(MakeBenchRun(run));
  auto network = FitNetwork(runs);
  EXPECT_TRUE(network.ok()) << network.status();
  return *std::move(network);
}

struct Trials {
  double log_error = 0;
  int count = 0;
  ShareForTest covered;

  void Add(double value, const Interval& interval, double truth) {
    log_error += std::log(value / truth);
    ++count;
    covered.Add(interval.low <= truth && truth <= interval.high);
  }
  void Expect(const std::string& what, double largest_bias) const {
    const double bias = std::exp(log_error / count) - 1;
    std::cout << "  " << covered.ToString(what) << " covered, bias "
              << 100 * bias << " %\n";
    EXPECT_LT(std::abs(bias), largest_bias) << what;
    EXPECT_GE(covered.share(), 0.9) << what;
  }
};

TEST(TwoLinks, BothAreFound) {
  Trials alpha[2], beta[2];
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const NetworkModel network = Fit(seed);
    for (const bool between : {false, true}) {
      const CollectiveCosts* costs = between
                                         ? network.FindAcrossHosts("ping_pong")
                                         : network.Find("ping_pong");
      ASSERT_NE(costs, nullptr);
      const CostLine& line = costs->curves.at(0).line;
      const Link truth = between ? kBetween : kWithin;
      alpha[between].Add(line.alpha_seconds, line.alpha_interval, truth.alpha);
      beta[between].Add(line.beta_seconds_per_byte, line.beta_interval,
                        truth.beta);
    }
  }
  for (const bool between : {false, true}) {
    const std::string name = between ? "between hosts" : "within a host";
    alpha[between].Expect("alpha " + name, 0.01);
    beta[between].Expect("beta " + name, 0.01);
  }
}

TEST(TwoLinks, RingsOverHostsFollowFromMessages) {
  for (const auto& [ranks, hosts] : std::vector<std::pair<int64_t, int64_t>>{
           {2, 2}, {4, 2}, {6, 3}, {16, 4}}) {
    for (const double bytes : {4096.0, 262144.0, 8388608.0}) {
      Trials ring, hierarchical;
      for (uint64_t seed = 0; seed < 60; ++seed) {
        const NetworkModel network = Fit(seed);
        const auto cost = network.Estimate("all_reduce", bytes, ranks, hosts);
        ASSERT_TRUE(cost.ok()) << cost.status();
        EXPECT_TRUE(cost->extrapolated);
        ring.Add(cost->seconds, cost->interval, kBetween.Ring(bytes, ranks));
        const auto parts = network.EstimateHierarchical(bytes, ranks, hosts);
        ASSERT_TRUE(parts.ok()) << parts.status();
        hierarchical.Add(
            parts->seconds, parts->interval,
            kWithin.Ring(bytes, ranks / hosts) + kBetween.Ring(bytes, hosts));
      }
      const std::string what = std::to_string(ranks) + " ranks of " +
                               std::to_string(hosts) + " hosts, " +
                               std::to_string(static_cast<int64_t>(bytes));
      ring.Expect("flat, " + what, 0.01);
      hierarchical.Expect("hierarchical, " + what, 0.01);
    }
  }
}

TEST(TwoLinks, WhatWasMeasuredOverHostsGrowsToMore) {
  Trials trials;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const NetworkModel network =
        Fit(seed, {Bench("all_reduce", 4, 2, 10 * seed + 4)});
    const auto measured = network.Estimate("all_reduce", 1e6, 4, 2);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_FALSE(measured->extrapolated);
    EXPECT_NEAR(measured->seconds / kBetween.Ring(1e6, 4), 1, 0.15);
    const auto cost = network.Estimate("all_reduce", 1e6, 12, 4);
    ASSERT_TRUE(cost.ok()) << cost.status();
    trials.Add(cost->seconds, cost->interval, kBetween.Ring(1e6, 12));
  }
  trials.Expect("12 ranks of 4 hosts", 0.02);
}

TEST(TwoLinks, AHostThatIsSlowerThanTheLinkSetsThePace) {
  NetworkModel network = Fit(1);
  network.across_hosts = LinkAcrossHosts(1e-9, 1e-14);
  const auto cost = network.Estimate("all_reduce", 1e6, 8, 2);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_EQ(cost->seconds, network.Estimate("all_reduce", 1e6, 8)->seconds);
}

TEST(TwoLinks, WhatIsMissingIsNamed) {
  const auto unknown =
      FlatNetwork(1e-5, 1e-9).Estimate("all_reduce", 1e6, 4, 2);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("all_reduce across hosts over flat were not measured"));
  EXPECT_THAT(std::string(FlatNetwork(1e-5, 1e-9)
                              .EstimateHierarchical(1e6, 5, 2)
                              .status()
                              .message()),
              HasSubstr("5 ranks are on 2 hosts"));
}

TEST(TwoLinks, RanksSpreadOverHostsAreLeftOut) {
  RunTrace run = MakeBenchRun(Bench("all_reduce", 4, 2, 1));
  for (RankTrace& rank : run.ranks) rank.run.host_index = rank.run.rank % 2;
  std::vector<std::string> left_out;
  EXPECT_FALSE(FitNetwork({run}, &left_out).ok());
  EXPECT_THAT(left_out,
              Contains(HasSubstr("did not number its ranks host by host")));
}

TEST(TwoLinks, TheFileAndTheTableHoldBoth) {
  const NetworkModel network = Fit(1);
  const std::string text = NetworkToJson(network);
  const auto back = NetworkFromJson(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(NetworkToJson(*back), text);
  EXPECT_EQ(back->Estimate("all_reduce", 1e6, 8, 4)->seconds,
            network.Estimate("all_reduce", 1e6, 8, 4)->seconds);
  EXPECT_THAT(NetworkText(network), HasSubstr("\nranks of several hosts:\n"));
  EXPECT_THAT(NetworkToJson(FlatNetwork(1, 1)), Not(HasSubstr("across_hosts")));
}

}  // namespace
}  // namespace rankwise
