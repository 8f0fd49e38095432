#include "analysis/report/network_data.h"

#include "analysis/cost_model/network_model.h"
#include "analysis/report/parts_for_test.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

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
  const nlohmann::json& all_gather = network["curves"][3];
  EXPECT_EQ(all_gather["collective"], "all_gather");
  EXPECT_EQ(nlohmann::json::parse(all_gather.dump())["bus_factor"], nullptr)
      << "no record knows it, and none is made up";
}

TEST(CallsDataTest, TellsRowsApartByHowTheyWereCalled) {
  Configuration call;
  call.name = "all_reduce of 4096 B float32 sum on 4 ranks, nccl, nccl, RING";
  call.identity = {{"collective", "all_reduce"},
                   {"bytes", "4096"},
                   {"ranks", "4"},
                   {"layer", "nccl"},
                   {"timing", "events"},
                   {"algorithm", "RING"}};
  call.samples = {{"call_seconds", {3e-5, 1e-5, 2e-5}}};
  call.bus_factor = 1.5;
  const nlohmann::json data = CallsData({call})[0];
  EXPECT_EQ(data["layer"], "nccl");
  EXPECT_EQ(data["timing"], "events");
  EXPECT_EQ(data["algorithm"], "RING");
  EXPECT_EQ(data["bytes"], 4096);
  EXPECT_EQ(data["launches"], 3);
  EXPECT_DOUBLE_EQ(data["seconds"], 2e-5);
  EXPECT_DOUBLE_EQ(data["bus_factor"], 1.5);
}

}  // namespace
}  // namespace rankwise
