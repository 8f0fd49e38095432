#include "analysis/cost_model/network_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "analysis/cost_model/cost_curve.h"
#include "analysis/cost_model/growth.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

// alpha 100 us +- 10, beta 1 ns/B +- 0.2 up to 1 MiB, half of it from there on.
CostCurve CurveOf(int64_t world_size, double scale) {
  CostCurve curve;
  curve.collective = "all_reduce";
  curve.backend = "gloo";
  curve.world_size = world_size;
  CostSegment small, large;
  small.max_bytes = large.min_bytes = 1 << 20;
  small.alpha_seconds = scale * 100e-6;
  small.alpha_interval = {scale * 90e-6, scale * 110e-6};
  small.beta_seconds_per_byte = scale * 1e-9;
  small.beta_interval = {scale * 0.8e-9, scale * 1.2e-9};
  large.beta_seconds_per_byte = scale * 0.5e-9;
  large.beta_interval = {scale * 0.5e-9, scale * 0.5e-9};
  curve.segments = {small, large};
  curve.points = {{8, 1e-4, {}}, {1 << 24, 1e-2, {}}};
  return curve;
}

NetworkModel Network(Growth growth, std::vector<CostCurve> curves) {
  NetworkModel network;
  network.name = "gloo on host";
  network.backend = "gloo";
  network.collectives = {{"all_reduce", growth, true, std::move(curves)}};
  return network;
}

TEST(Estimate, AtAMeasuredWorldSizeIsTheCurve) {
  const NetworkModel network = Network(Growth::kRing, {CurveOf(2, 1)});
  const auto cost = network.Estimate("all_reduce", 1e5, 2);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_NEAR(cost->seconds, 200e-6, 1e-12);
  // sqrt(10^2 + (0.2 * 100)^2) us
  EXPECT_NEAR(cost->interval.low, 200e-6 - 22.36e-6, 1e-8);
  EXPECT_NEAR(cost->interval.high, 200e-6 + 22.36e-6, 1e-8);
  EXPECT_FALSE(cost->extrapolated);
  EXPECT_NEAR(network.Estimate("all_reduce", 1e7, 2)->seconds, 5e-3, 1e-12);
}

TEST(Estimate, HowFarSizesLieFromTheCurveWidensTheInterval) {
  CostCurve curve = CurveOf(2, 1);
  curve.median_relative_error = 0.1;
  const auto cost =
      Network(Growth::kRing, {curve}).Estimate("all_reduce", 1e7, 2);
  EXPECT_NEAR(cost->interval.high / cost->seconds - 1, 0.2906, 1e-3);
}

TEST(Estimate, GrowsAsItsGrowthSays) {
  const auto at = [](Growth growth, double bytes, int64_t ranks) {
    return Network(growth, {CurveOf(2, 1)})
        .Estimate("all_reduce", bytes, ranks)
        ->seconds;
  };
  EXPECT_NEAR(at(Growth::kFlat, 1e5, 8), 200e-6, 1e-12);
  EXPECT_NEAR(at(Growth::kTree, 1e5, 8), 400e-6, 1e-12);
  EXPECT_NEAR(at(Growth::kRing, 1e5, 8), 700e-6 + 175e-6, 1e-12);
}

TEST(Estimate, BetweenWorldSizesLiesBetweenTheirCurves) {
  const NetworkModel network =
      Network(Growth::kFlat, {CurveOf(2, 1), CurveOf(8, 3)});
  const auto cost = network.Estimate("all_reduce", 1e5, 4);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_NEAR(cost->seconds, 400e-6, 1e-10);  // 4 is half way
  EXPECT_FALSE(cost->extrapolated);
  EXPECT_NEAR(network.Estimate("all_reduce", 1e5, 8)->seconds, 600e-6, 1e-10);
  EXPECT_NEAR(network.Estimate("all_reduce", 1e5, 64)->seconds, 600e-6, 1e-10);
}

TEST(Estimate, SaysWhatIsBeyondWhatWasMeasured) {
  const NetworkModel network =
      Network(Growth::kRing, {CurveOf(4, 1), CurveOf(8, 1)});
  EXPECT_FALSE(network.Estimate("all_reduce", 1e5, 6)->extrapolated);
  EXPECT_TRUE(network.Estimate("all_reduce", 1e5, 2)->extrapolated);
  EXPECT_TRUE(network.Estimate("all_reduce", 1e5, 9)->extrapolated);
  EXPECT_TRUE(network.Estimate("all_reduce", 4, 4)->extrapolated);
  EXPECT_TRUE(network.Estimate("all_reduce", 1e9, 4)->extrapolated);
}

TEST(Estimate, OneRankPaysNothing) {
  const auto cost =
      Network(Growth::kRing, {CurveOf(2, 1)}).Estimate("all_reduce", 1e9, 1);
  EXPECT_EQ(cost->seconds, 0);
  EXPECT_EQ(cost->interval.high, 0);
}

TEST(Estimate, WhatWasNotMeasuredIsNamed) {
  const auto cost =
      Network(Growth::kRing, {CurveOf(2, 1)}).Estimate("broadcast", 8, 2);
  EXPECT_EQ(cost.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(cost.status().message()),
              HasSubstr("--collectives=broadcast"));
}

TEST(Estimate, CallsThatCannotBeAreRefused) {
  const NetworkModel network = FlatNetwork(1, 1);
  for (const double bytes :
       {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(network.Estimate("all_reduce", bytes, 2).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(network.Estimate("all_reduce", 8, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FlatNetwork, CostsTheSameEverywhere) {
  const NetworkModel network = FlatNetwork(2e-5, 1e-9);
  for (const char* collective : {"all_reduce", "ping_pong", "anything"}) {
    for (const int64_t ranks : {2, 3, 1024}) {
      const auto cost = network.Estimate(collective, 1e6, ranks);
      ASSERT_TRUE(cost.ok()) << cost.status();
      EXPECT_NEAR(cost->seconds, 1.02e-3, 1e-12);
      EXPECT_EQ(cost->interval.low, cost->seconds);
      EXPECT_EQ(cost->interval.high, cost->seconds);
      EXPECT_FALSE(cost->extrapolated);
    }
  }
}

}  // namespace
}  // namespace rankwise
