#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "analysis/cost_model/network_model.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

// 10 us and 2 ns/B by the line; at 1000 bytes, twice the line's duration.
NetworkModel NetworkWith(const std::string& collective) {
  NetworkModel network = FlatNetwork(1e-5, 2e-9);
  network.collectives[0].collective = collective;
  network.collectives[0].curves[0].points = {{0, 1e-5, {1e-5, 1e-5}},
                                             {1000, 2.4e-5, {2e-5, 3e-5}}};
  return network;
}

TEST(LineOfMessages, GivesWhatAMessageOfTheSizeTakes) {
  const NetworkModel network = NetworkWith("send_recv");
  const auto small = LineOfMessages(network, 0);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_DOUBLE_EQ(small->alpha_seconds, 1e-5);
  EXPECT_DOUBLE_EQ(small->beta_seconds_per_byte, 2e-9);
  EXPECT_EQ(small->collective, "send_recv");
  EXPECT_DOUBLE_EQ(LineOfMessages(network, 1000)->alpha_seconds, 2e-5);
  EXPECT_DOUBLE_EQ(LineOfMessages(network, 1000)->beta_seconds_per_byte, 4e-9);
  EXPECT_DOUBLE_EQ(LineOfMessages(network, 1e6)->beta_seconds_per_byte, 4e-9);
}

TEST(LineOfMessages, PrefersPingPong) {
  NetworkModel network = NetworkWith("send_recv");
  network.collectives.push_back(NetworkWith("ping_pong").collectives[0]);
  EXPECT_EQ(LineOfMessages(network, 8)->collective, "ping_pong");
}

TEST(LineOfMessages, TakesThoseBetweenHostsWhereNoneWereWithinOne) {
  NetworkModel network = NetworkWith("all_reduce");
  network.across_hosts = LinkAcrossHosts(5e-5, 8e-9);
  network.across_hosts[0].collective = "send_recv";
  const auto between = LineOfMessages(network, 8);
  ASSERT_TRUE(between.ok()) << between.status();
  EXPECT_EQ(between->collective, "send_recv");
  EXPECT_DOUBLE_EQ(between->alpha_seconds, 5e-5);
  network.across_hosts[0].collective = "ping_pong";
  network.collectives.push_back(NetworkWith("send_recv").collectives[0]);
  EXPECT_EQ(LineOfMessages(network, 8)->collective, "send_recv");
}

TEST(LineOfMessages, SaysWhatToMeasure) {
  const auto line = LineOfMessages(NetworkWith("all_reduce"), 8);
  EXPECT_EQ(line.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(line.status().message()),
              HasSubstr("--collectives=ping_pong,send_recv"));
}

TEST(NetworkText, SaysHowFarTheLineAndTheNeighboursAreOff) {
  NetworkModel network = NetworkWith("all_reduce");
  network.collectives[0].curves[0].median_relative_error = 0.25;
  const std::string text = NetworkText(network);
  EXPECT_THAT(text, HasSubstr("0 B to 1000 B"));
  EXPECT_THAT(text, HasSubstr("25.0"));
  EXPECT_THAT(text, HasSubstr("all_reduce grows as flat, assumed"));
  EXPECT_THAT(NetworkText(FlatNetwork(1e-5, 2e-9)), HasSubstr("any"));
}

TEST(ShowFlags, AreThoseOfTheLink) {
  EXPECT_EQ(ShowFlags({1.5e-5, 2e-9, ""}, 65536),
            "--link=1.5e-05,2e-09 --bytes=65536");
}

// Delay of one message in ASTRA-sim's congestion-unaware ring: hops * latency +
// bytes / (bandwidth * 2^30 / 10^9) ns.
TEST(AstraSimNetwork, GivesBackTheLineUnderItsOwnFormula) {
  const auto text = AstraSimNetwork({1.5e-5, 2e-9, ""}, 4);
  ASSERT_TRUE(text.ok()) << text.status();
  double bandwidth = 0, latency = 0;
  int npus = 0;
  ASSERT_EQ(std::sscanf(text->c_str(),
                        "topology: [ Ring ]\nnpus_count: [ %d ]\n"
                        "bandwidth: [ %lf ]  # GB/s, of 2^30 bytes\n"
                        "latency: [ %lf ]  # ns\n",
                        &npus, &bandwidth, &latency),
            3)
      << *text;
  EXPECT_EQ(npus, 4);
  const double bytes = 1e6;
  const double ns = latency + bytes / (bandwidth * (1 << 30) / 1e9);
  EXPECT_NEAR(ns * 1e-9, 1.5e-5 + 2e-9 * bytes, 1e-12);
}

TEST(AstraSimNetwork, RefusesWhatASTRASimWouldRefuse) {
  EXPECT_EQ(AstraSimNetwork({1e-5, 1e-9, ""}, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AstraSimNetwork({1e-5, 0, ""}, 2).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace rankwise
