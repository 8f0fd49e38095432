#include "analysis/report/network_data.h"

#include "analysis/cost_model/network_model.h"
#include "analysis/report/parts_for_test.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

TEST(BusFactorTest, IsThatOfTheBenchmark) {
  EXPECT_DOUBLE_EQ(BusFactor("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(BusFactor("all_reduce", 2), 1);
  EXPECT_DOUBLE_EQ(BusFactor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor("reduce_scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor("all_to_all", 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor("gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor("scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor("bidirectional", 2), 2);
  EXPECT_DOUBLE_EQ(BusFactor("broadcast", 4), 1);
  EXPECT_DOUBLE_EQ(BusFactor("send_recv", 4), 1);
}

TEST(NetworksDataTest, HoldsEveryCurveWithItsPieces) {
  const nlohmann::json network =
      NetworksData({MakeNetwork("gloo on box", "gloo")})[0];
  EXPECT_EQ(network["name"], "gloo on box");
  ASSERT_EQ(network["curves"].size(), 9);
  const nlohmann::json& curve = network["curves"][1];
  EXPECT_EQ(curve["collective"], "all_reduce");
  EXPECT_EQ(curve["ranks"], 4);
  EXPECT_DOUBLE_EQ(curve["bus_factor"], 1.5);
  ASSERT_EQ(curve["segments"].size(), 2);
  EXPECT_EQ(curve["segments"][0]["max_bytes"], 65536);
  EXPECT_EQ(curve["points"][0]["bytes"], 8);
}

}  // namespace
}  // namespace rankwise
