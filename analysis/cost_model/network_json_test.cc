#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/cost_model/runs_for_test.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

NetworkModel FittedNetwork() {
  BenchRunForTest run;
  run.collectives = {"all_reduce", "ping_pong", "send_recv"};
  run.noise = {};
  run.seconds = [](double bytes) {
    return bytes < 1e4 ? 1e-4 / 3 + 1e-9 / 7 * bytes : 4e-4 + 1e-9 * bytes;
  };
  return *FitNetwork({MakeBenchRun(run)});
}

TEST(NetworkJson, RoundTripIsExact) {
  NetworkModel network = FittedNetwork();
  network.collectives[0].curves[0].bus_factor = 1 / 3.0;
  const std::string text = NetworkToJson(network);
  const auto read = NetworkFromJson(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(NetworkToJson(*read), text);
  ASSERT_EQ(read->collectives.size(), 3u);
  const CostCurve& before = network.collectives[0].curves[0];
  const CostCurve& after = read->collectives[0].curves[0];
  EXPECT_EQ(after.line.alpha_seconds, before.line.alpha_seconds);
  EXPECT_EQ(after.line.beta_interval.high, before.line.beta_interval.high);
  ASSERT_EQ(after.points.size(), before.points.size());
  EXPECT_EQ(after.points[3].median_seconds, before.points[3].median_seconds);
  EXPECT_EQ(after.bus_factor, before.bus_factor);
  EXPECT_TRUE(std::isnan(read->collectives[1].curves[0].bus_factor));
  EXPECT_EQ(read->Estimate("all_reduce", 12345, 7)->interval.high,
            network.Estimate("all_reduce", 12345, 7)->interval.high);
}

TEST(NetworkJson, AFlatNetworkGoesThrough) {
  const auto read = NetworkFromJson(NetworkToJson(FlatNetwork(1e-5, 2e-9)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_NEAR(read->Estimate("anything", 1e6, 64)->seconds, 2.01e-3, 1e-12);
}

// The example of docs/cost_model.md.
TEST(NetworkJson, OneLineForEverythingCanBeWrittenByHand) {
  const auto read = NetworkFromJson(R"(
{"format": "rankwise network", "version": 2, "name": "assumed", "backend": "any",
 "collectives": [{"collective": "*", "growth": "flat", "growth_is_assumed": true, "curves": [{"world_size": 2,
   "median_relative_error": 0, "points": [], "line": {"alpha_seconds": 2e-5, "alpha_interval": [2e-5, 2e-5],
   "beta_seconds_per_byte": 1e-10, "beta_interval": [1e-10, 1e-10]}}]}]})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_NEAR(read->Estimate("all_reduce", 1e6, 64)->seconds, 1.2e-4, 1e-12);
}

TEST(NetworkJson, OtherFilesAndVersionsAreRefused) {
  for (const char* text : {"", "not json", "[]", "{}", "{\"version\": 1}"}) {
    const auto read = NetworkFromJson(text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(read.status().message()),
                HasSubstr("not a network file"));
  }
  const auto read = NetworkFromJson(
      absl::StrReplaceAll(NetworkToJson(FlatNetwork(1, 1)),
                          {{"\"version\": 2", "\"version\": 1"}}));
  EXPECT_THAT(
      std::string(read.status().message()),
      AllOf(HasSubstr("version: is 1, and this program reads version 2"),
            HasSubstr("fit the records again")));
}

// A substitution in the flat network's file, and the expected error.
struct Break {
  std::string from, to, complaint;
};

TEST(NetworkJson, WhatIsBrokenIsNamed) {
  const std::string text = NetworkToJson(FlatNetwork(0.5, 0.25));
  const std::string curve = "(/collectives/0/curves/0";
  const std::string line = curve + "/line";
  const std::vector<Break> breaks = {
      {"\"name\": \"flat\"", "\"name\": 3", "(/name) type must be string"},
      {"\"name\": \"flat\",", "", "key 'name' not found"},
      {"\"growth\": \"flat\"", "\"growth\": \"star\"",
       "(/collectives/0/growth) must be flat, tree, ring or exchange"},
      {"\"growth_is_assumed\": true", "\"growth_is_assumed\": 1",
       "(/collectives/0/growth_is_assumed) type must be boolean"},
      {"\"world_size\": 2", "\"world_size\": 1",
       curve + "/world_size) must be an integer above 1"},
      {"\"world_size\": 2", "\"world_size\": 2.5",
       curve + "/world_size) must be an integer above 1"},
      {"\"alpha_seconds\": 0.5", "\"alpha_seconds\": -0.5",
       line + "/alpha_seconds) must be a number that is not negative"},
      {"\"alpha_seconds\": 0.5", "\"alpha_seconds\": \"0.5\"",
       line + "/alpha_seconds) type must be number, but is string"},
      {"\"beta_seconds_per_byte\": 0.25,", "",
       line + ") key 'beta_seconds_per_byte' not found"},
      {"\"points\": []", "\"points\": {}",
       curve + "/points) type must be array"},
      {"\"points\": []", "\"points\": [{}]",
       curve + "/points/0) key 'bytes' not found"},
      {"\"points\": []",
       "\"points\": [{\"bytes\": 8, \"median_seconds\": 1, \"interval\": [1, "
       "1]}, {\"bytes\": 8, \"median_seconds\": 1, \"interval\": [1, 1]}]",
       curve + "/points) must be in the order of their sizes"},
      {"\"points\": []",
       "\"points\": [{\"bytes\": 8, \"median_seconds\": 3, \"interval\": [1, "
       "2]}]",
       curve + "/points/0/interval) must hold the median_seconds"},
      {"\"name\": \"flat\"", "\"name\": \"\\u001b[2J\"",
       "(/name) must not hold control characters"},
      {"\"collective\": \"*\"", "\"collective\": \"*\\n\"",
       "(/collectives/0/collective) must not hold control characters"},
      {"\"name\"", "\"title\": 1, \"name\"",
       "has the unknown key \"title\"; known are format, version, name"},
      {"\"growth\"", "\"grow\": 1, \"growth\"", "the unknown key \"grow\""},
      {"\"line\"", "\"lines\": 1, \"line\"", "the unknown key \"lines\""},
      {"\"alpha_seconds\"", "\"alpha\": 1, \"alpha_seconds\"",
       line + ") has the unknown key \"alpha\""},
      {"\"points\": []",
       "\"points\": [{\"bytes\": 8, \"median_seconds\": 1, \"interval\": [1, "
       "1], \"n\": 3}]",
       curve + "/points/0) has the unknown key \"n\""},
      {"\"collectives\": [", "\"collectives\": [7, ",
       "(/collectives/0) cannot use at() with number"},
  };
  for (const Break& broken : breaks) {
    const std::string changed =
        absl::StrReplaceAll(text, {{broken.from, broken.to}});
    ASSERT_NE(changed, text) << broken.from;
    const auto read = NetworkFromJson(changed);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(read.status().message()),
                HasSubstr(broken.complaint))
        << broken.from;
  }
}

TEST(NetworkJson, NumbersThatNothingCanTakeAreRefused) {
  const std::string text = NetworkToJson(FlatNetwork(0.5, 0.25));
  for (const auto& [from, to] : std::map<std::string, std::string>{
           {"\"alpha_seconds\": 0.5", "\"alpha_seconds\": 1e300"},
           {"\"alpha_seconds\": 0.5", "\"alpha_seconds\": 1e400"},
           {"\"world_size\": 2", "\"world_size\": 18446744073709551615"}}) {
    const auto read = NetworkFromJson(absl::StrReplaceAll(text, {{from, to}}));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << to;
  }
}

TEST(NetworkJson, WhatIsNestedDeeplyIsRefused) {
  const std::string head = "{\"format\": \"rankwise network\", \"version\": ";
  EXPECT_THAT(std::string(NetworkFromJson(head + "[[]]}").status().message()),
              HasSubstr("version: is array"));
  const std::string deep =
      std::string(1 << 20, '[') + std::string(1 << 20, ']');
  EXPECT_THAT(
      std::string(
          NetworkFromJson(head + deep + ", \"name\": 1}").status().message()),
      HasSubstr("not a network file, nested too deeply"));
  // Brackets within a string do not count.
  EXPECT_THAT(std::string(NetworkFromJson(head + "\"\\\"" +
                                          std::string(200, '[') + "\"}")
                              .status()
                              .message()),
              HasSubstr("version: is string"));
}

TEST(NetworkJson, ThePlaceThatIsNoJsonIsNamed) {
  EXPECT_THAT(std::string(NetworkFromJson("{\"format\" 1}").status().message()),
              HasSubstr("not a network file, no JSON from byte 11 on"));
}

TEST(NetworkJson, IntervalsMustNotFall) {
  NetworkModel network = FlatNetwork(1, 1);
  network.collectives[0].curves[0].line.alpha_interval = {2, 1};
  EXPECT_THAT(
      std::string(NetworkFromJson(NetworkToJson(network)).status().message()),
      HasSubstr("/alpha_interval) must not fall"));
}

TEST(NetworkJson, ACollectiveHasCurves) {
  NetworkModel network = FlatNetwork(1, 1);
  network.collectives[0].curves.clear();
  EXPECT_THAT(
      std::string(NetworkFromJson(NetworkToJson(network)).status().message()),
      HasSubstr("(/collectives/0/curves) must not be empty"));
}

TEST(NetworkJson, ACollectiveStandsOnce) {
  NetworkModel network = FlatNetwork(1, 1);
  network.collectives.push_back(network.collectives[0]);
  EXPECT_THAT(
      std::string(NetworkFromJson(NetworkToJson(network)).status().message()),
      HasSubstr("(/collectives) \"*\" appears twice"));
}

}  // namespace
}  // namespace rankwise
