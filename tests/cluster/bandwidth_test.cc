// Tests comm_bench and the fit with a link of known rate, limited by the
// kernel.

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/cluster.h"

namespace rankwise {
namespace {

// Low enough for any processor to saturate, even with concurrent tests.
constexpr char kRate[] = "100mbit";
constexpr double kBytesPerSecond = 100e6 / 8;
// TCP carries 8,948 of 9,014 bytes on the wire, with 12 bytes of options.
constexpr double kPayload = 8948.0 / 9014;

class BandwidthTest : public ClusterTest {
 protected:
  Cluster::Options options() const override { return {2, kRate}; }
};

// Returns the bytes per second across the link according to `network`, a file
// of fit_network.
double BusBandwidth(const nlohmann::json& network,
                    const std::string& collective) {
  for (const auto& costs : network["across_hosts"]) {
    if (costs["collective"] != collective) continue;
    const auto& curve = costs["curves"][0];
    return curve["bus_factor"].get<double>() /
           curve["line"]["beta_seconds_per_byte"].get<double>();
  }
  ADD_FAILURE() << collective << " is not in " << network;
  return 0;
}

TEST_F(BandwidthTest, TheFitFindsTheRateOfTheLink) {
  const std::string record = TemporaryPath("comm.jsonl");
  const std::string json = TemporaryPath("network.json");
  const auto ranks = StartRanks(
      cluster(), 2, 1,
      absl::StrCat("comm_bench/comm_bench --backend=gloo --threads=1 "
                   "--collectives=all_reduce,send_recv --sizes=512K,1M,2M "
                   "--warmup=1 --iterations=12 --record=",
                   record));
  for (const auto& rank : ranks) ASSERT_EQ(rank->Wait(), 0) << rank->Stderr();
  const Finished fit = cluster().Run(
      "host1", absl::StrCat("analysis/cost_model/fit_network --records=",
                            record, " --json=", json));
  ASSERT_EQ(fit.code, 0) << fit.err;
  const auto network = nlohmann::json::parse(std::ifstream(json));
  constexpr double kTruth = kBytesPerSecond * kPayload;
  for (const char* collective : {"all_reduce", "send_recv"}) {
    const double fitted = BusBandwidth(network, collective);
    std::printf("%s: %.2f MB/s, %+.2f %% of the link's\n", collective,
                fitted / 1e6, 100 * (fitted / kTruth - 1));
    EXPECT_NEAR(fitted, kTruth, 0.05 * kTruth) << collective << "\n" << fit.out;
  }
}

}  // namespace
}  // namespace rankwise
