#include "analysis/compare/pairing.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace rankwise {
namespace {

Configuration Make(const std::string& ranks,
                   const std::map<std::string, std::string>& flags) {
  Configuration configuration;
  configuration.name = "ddp on " + ranks + " ranks";
  configuration.identity = {{"trainer", "ddp"}, {"ranks", ranks}};
  configuration.flags = flags;
  return configuration;
}

TEST(PairConfigurations, ByIdentityAndFlags) {
  const std::vector<Configuration> a = {Make("2", {{"lr", "0.1"}}),
                                        Make("4", {{"lr", "0.1"}}),
                                        Make("8", {{"lr", "0.1"}})};
  const std::vector<Configuration> b = {Make("4", {{"lr", "0.2"}}),
                                        Make("2", {{"lr", "0.2"}}),
                                        Make("2", {{"lr", "0.1"}})};
  const Pairing pairing = PairConfigurations(a, b, {});
  ASSERT_EQ(pairing.pairs.size(), 1u);
  EXPECT_EQ(pairing.pairs[0].a, &a[0]);
  EXPECT_EQ(pairing.pairs[0].b, &b[2]);
  EXPECT_EQ(pairing.pairs[0].remark, "");
  EXPECT_EQ(pairing.only_a.size(), 2u);
  EXPECT_EQ(pairing.only_b.size(), 2u);
}

TEST(PairConfigurations, AFlagThatOneSideLacksDoesNotSeparate) {
  const std::vector<Configuration> a = {Make("2", {{"old", "1"}})};
  const std::vector<Configuration> b = {Make("2", {{"new", "true"}})};
  const Pairing pairing = PairConfigurations(a, b, {});
  ASSERT_EQ(pairing.pairs.size(), 1u);
  EXPECT_EQ(pairing.pairs[0].remark,
            "only A has --old=1, only B has --new=true");
}

TEST(PairConfigurations, EqualFlagsComeFirst) {
  const std::vector<Configuration> a = {Make("2", {})};
  const std::vector<Configuration> b = {Make("2", {{"new", "true"}}),
                                        Make("2", {})};
  const Pairing pairing = PairConfigurations(a, b, {});
  ASSERT_EQ(pairing.pairs.size(), 1u);
  EXPECT_EQ(pairing.pairs[0].b, &b[1]);
}

TEST(PairConfigurations, WhatFitsSeveralIsNotPaired) {
  const std::vector<Configuration> a = {Make("2", {})};
  const std::vector<Configuration> b = {Make("2", {{"new", "true"}}),
                                        Make("2", {{"new", "false"}})};
  EXPECT_TRUE(PairConfigurations(a, b, {}).pairs.empty());
  EXPECT_TRUE(PairConfigurations(b, a, {}).pairs.empty());
}

TEST(PairConfigurations, EqualCpusComeFirstAndNeedNotBe) {
  std::vector<Configuration> a = {Make("2", {}), Make("2", {})};
  a[0].cpus = "old CPU";
  a[1].cpus = "new CPU";
  const std::vector<Configuration> b = {a[1], a[0]};
  const Pairing pairing = PairConfigurations(a, b, {});
  ASSERT_EQ(pairing.pairs.size(), 2u);
  EXPECT_EQ(pairing.pairs[0].b, &b[1]);
  EXPECT_EQ(pairing.pairs[1].b, &b[0]);
  const std::vector<Configuration> other = {Make("2", {})};
  EXPECT_EQ(PairConfigurations({a[0]}, other, {}).pairs.size(), 1u);
  EXPECT_TRUE(PairConfigurations(a, other, {}).pairs.empty());
  EXPECT_EQ(NearestMiss(a, other),
            "ddp on 2 ranks is in both, but several times in one of them");
}

TEST(PairConfigurations, IgnoredFlagsMayDiffer) {
  const std::vector<Configuration> a = {Make("2", {{"bucket_cap_mb", "25"}})};
  const std::vector<Configuration> b = {Make("2", {{"bucket_cap_mb", "50"}})};
  EXPECT_TRUE(PairConfigurations(a, b, {}).pairs.empty());
  const Pairing pairing = PairConfigurations(a, b, {"bucket_cap_mb"});
  ASSERT_EQ(pairing.pairs.size(), 1u);
  EXPECT_EQ(pairing.pairs[0].remark, "--bucket_cap_mb: \"25\" and \"50\"");
}

TEST(NearestMiss, NamesTheFewestDifferences) {
  const std::vector<Configuration> a = {
      Make("2", {{"lr", "0.1"}, {"seed", "0"}}),
      Make("4", {{"lr", "0.1"}, {"seed", "0"}})};
  const std::vector<Configuration> b = {
      Make("4", {{"lr", "0.2"}, {"seed", "0"}})};
  EXPECT_EQ(NearestMiss(a, b),
            "ddp on 4 ranks is in both, but for --lr: \"0.1\" and \"0.2\"");
  EXPECT_EQ(NearestMiss({a[0]}, {Make("8", {})}),
            "ddp on 2 ranks is in both, but for ranks: \"2\" and \"8\"");
}

}  // namespace
}  // namespace rankwise
