#include "analysis/compare/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns 5 values around `centre` that differ by up to 2 %.
std::vector<double> Around(double centre) {
  return {0.99 * centre, centre, 1.01 * centre, 0.995 * centre, 1.005 * centre};
}

struct MetricSample {
  std::string metric;
  std::vector<double> values;
  double step_seconds = 0;  // of the step that contains the metric
};

RecordSet SetOf(const std::vector<MetricSample>& samples) {
  RecordSet set;
  set.path = "records";
  Configuration configuration;
  configuration.name = "ddp on 2 ranks, batch 32";
  configuration.unit = "run";
  for (const MetricSample& sample : samples) {
    configuration.samples[sample.metric] = sample.values;
    if (sample.step_seconds == 0) continue;
    configuration.samples.insert({"step_seconds", {sample.step_seconds}});
  }
  set.configurations = {configuration};
  return set;
}

Change Compare(const MetricSample& a, const MetricSample& b,
               const ChangeConfig& config = {}) {
  const auto comparison = CompareRecordSets(SetOf({a}), SetOf({b}), config);
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  const auto change = std::find_if(
      comparison->changes.begin(), comparison->changes.end(),
      [&a](const Change& one) { return one.metric->name == a.metric; });
  EXPECT_NE(change, comparison->changes.end());
  return *change;
}

const Metric& MetricNamed(absl::string_view name) {
  return *std::find_if(
      std::begin(kMetrics), std::end(kMetrics),
      [name](const Metric& metric) { return metric.name == name; });
}

TEST(CompareRecordSets, FiguresOfAChange) {
  const Change change =
      Compare({"step_seconds", Around(0.1)}, {"step_seconds", Around(0.12)});
  EXPECT_EQ(change.name, "ddp on 2 ranks, batch 32");
  EXPECT_EQ(change.unit, "run");
  EXPECT_EQ(change.repetitions_a, 5u);
  EXPECT_NEAR(change.a, GeometricMean(Around(0.1)), 1e-12);
  EXPECT_NEAR(change.b, GeometricMean(Around(0.12)), 1e-12);
  EXPECT_NEAR(change.ratio, 1.2, 1e-12);
  EXPECT_GT(change.interval.low, 1.17);
  EXPECT_LT(change.interval.high, 1.23);
  EXPECT_LT(change.p_value, 1e-7);
  EXPECT_EQ(change.corrected_p, change.p_value);  // the only figure
  EXPECT_EQ(change.verdict, Verdict::kWorse);
}

TEST(Verdict, WorseAndBetterFollowTheMetric) {
  EXPECT_EQ(Compare({"step_seconds", Around(1)}, {"step_seconds", Around(0.8)})
                .verdict,
            Verdict::kBetter);
  EXPECT_EQ(Compare({"examples_per_second", Around(1)},
                    {"examples_per_second", Around(0.8)})
                .verdict,
            Verdict::kWorse);
  EXPECT_EQ(Compare({"examples_per_second", Around(1)},
                    {"examples_per_second", Around(1.2)})
                .verdict,
            Verdict::kBetter);
  EXPECT_EQ(
      Compare({"peak_bytes", Around(1e9)}, {"peak_bytes", Around(2e9)}).verdict,
      Verdict::kWorse);
}

TEST(Verdict, TheThresholdIsPassedByWhatIsBeyondIt) {
  const MetricSample a{"step_seconds", Around(1)};
  const MetricSample b{"step_seconds", Around(1.1)};
  EXPECT_EQ(Compare(a, b).verdict, Verdict::kWorse);
  ChangeConfig config;
  config.threshold = 0.15;
  EXPECT_EQ(Compare(a, b, config).verdict, Verdict::kEquivalent);
  EXPECT_EQ(Compare(b, a, config).verdict, Verdict::kEquivalent);
}

TEST(Verdict, IsByTheWholeIntervalAndNotByTheEstimate) {
  const MetricSample a{"step_seconds", {1.0, 1.3, 0.8, 1.1, 0.9}};
  const MetricSample equal{"step_seconds", {1.01, 1.29, 0.81, 1.09, 0.9}};
  EXPECT_EQ(Compare(a, equal).verdict, Verdict::kInconclusive);
  const MetricSample b{"step_seconds", {1.2, 1.5, 0.85, 1.25, 0.95}};
  EXPECT_EQ(Compare(a, b).verdict, Verdict::kInconclusive);
  // 1.06 [1.048, 1.072]: certainly slower, but possibly by less than 5 %.
  const Change little =
      Compare({"step_seconds", Around(1)}, {"step_seconds", Around(1.06)});
  EXPECT_LT(little.corrected_p, 1e-4);
  EXPECT_LT(little.interval.low, 1.05);
  EXPECT_EQ(little.verdict, Verdict::kInconclusive);
  EXPECT_EQ(Compare({"step_seconds", Around(1)}, {"step_seconds", Around(1.03)})
                .verdict,
            Verdict::kEquivalent);
}

// A gate must not be blocked by a speed-up of about the threshold, which no
// number of repetitions separates from the threshold.
TEST(Verdict, EquivalentOrBetterIsNotWorse) {
  for (const auto& [metric, factor] :
       {std::pair("step_seconds", 1 / 1.05), std::pair("peak_bytes", 1 / 1.05),
        std::pair("examples_per_second", 1.05)}) {
    const MetricSample a{metric, Around(1)};
    const MetricSample b{metric, Around(factor)};
    EXPECT_EQ(Compare(a, b).verdict, Verdict::kNotWorse) << metric;
    EXPECT_EQ(Compare(b, a).verdict, Verdict::kInconclusive) << metric;
  }
}

TEST(Verdict, RepetitionsWithoutVarianceAreCertain) {
  const MetricSample a{"peak_bytes", {1e9, 1e9}};
  EXPECT_EQ(Compare(a, a).verdict, Verdict::kEquivalent);
  EXPECT_EQ(Compare(a, {"peak_bytes", {1e9, 1e9, 1e9}}).verdict,
            Verdict::kEquivalent);
  EXPECT_EQ(Compare(a, {"peak_bytes", {1.04e9, 1.04e9}}).verdict,
            Verdict::kEquivalent);
  EXPECT_EQ(Compare(a, {"peak_bytes", {1.06e9, 1.06e9}}).verdict,
            Verdict::kWorse);
  ChangeConfig config;
  config.threshold = 0;
  EXPECT_EQ(Compare(a, a, config).verdict, Verdict::kEquivalent);
}

TEST(Verdict, FewRepetitionsNeedALargeChange) {
  const MetricSample a{"step_seconds", {1, 1.02}};
  EXPECT_EQ(Compare(a, {"step_seconds", {3, 3.02}}).verdict, Verdict::kWorse);
  EXPECT_EQ(Compare(a, {"step_seconds", {1.07, 1.1}}).verdict,
            Verdict::kInconclusive);
}

TEST(Verdict, OneRepetitionIsNeverARegression) {
  for (const std::vector<double>& b : {std::vector<double>{3}, {3, 3.01, 3}}) {
    const Change change = Compare({"step_seconds", {1}}, {"step_seconds", b});
    EXPECT_EQ(change.verdict, Verdict::kInconclusive);
    EXPECT_NEAR(change.ratio, 3, 0.01);
    EXPECT_TRUE(std::isnan(change.interval.low));
    EXPECT_TRUE(std::isnan(change.corrected_p));
  }
}

TEST(Verdict, IsByThePCorrectedForTheNumberOfFigures) {
  // A p of 0.016, significant for one figure, but not for five.
  const MetricSample a{"step_seconds", {1, 1.02, 1.04, 1.06, 1.08}};
  const MetricSample b{"step_seconds", {1.06, 1.08, 1.12, 1.15, 1.16}};
  ChangeConfig config;
  config.threshold = 0;
  EXPECT_EQ(Compare(a, b, config).verdict, Verdict::kWorse);
  EXPECT_EQ(Compare(b, a, config).verdict, Verdict::kBetter);
  RecordSet many_a = SetOf({a}), many_b = SetOf({b});
  for (const char* metric : {"examples_per_second", "comm_wait_seconds",
                             "data_wait_seconds", "peak_bytes"}) {
    for (RecordSet* set : {&many_a, &many_b}) {
      set->configurations[0].samples[metric] = Around(1);
    }
  }
  const auto comparison = CompareRecordSets(many_a, many_b, config);
  ASSERT_EQ(comparison->changes.size(), 5u);
  const Change& change = comparison->changes[0];
  EXPECT_NEAR(change.corrected_p, 5 * change.p_value, 1e-12);
  EXPECT_EQ(change.verdict, Verdict::kInconclusive);
  EXPECT_EQ(CompareRecordSets(many_b, many_a, config)->changes[0].verdict,
            Verdict::kNotWorse);
}

TEST(Verdict, RepetitionsWithZeroAreComparedByTheirMeans) {
  const MetricSample a{"data_wait_seconds", {0, 0.01, 0.011, 0.01}, 0.1};
  const MetricSample b{"data_wait_seconds", {0.03, 0.031, 0.03, 0.029}, 0.1};
  const Change change = Compare(a, b);
  EXPECT_NEAR(change.a, 0.00775, 1e-12);
  EXPECT_NEAR(change.ratio, 0.03 / 0.00775, 1e-9);
  EXPECT_TRUE(change.by_difference);
  EXPECT_NEAR(change.interval.low + change.interval.high, 2 * 0.02225, 1e-12);
  EXPECT_EQ(change.verdict, Verdict::kWorse);
  EXPECT_EQ(Compare(b, a).verdict, Verdict::kBetter);
}

TEST(Verdict, RepetitionsWithZeroAreJudgedByTheThresholdToo) {
  // Without step_seconds, only the threshold applies.
  const MetricSample a{"data_wait_seconds", {0, 0.01, 0.011, 0.01, 0.01, 0.01}};
  const MetricSample b{"data_wait_seconds", {0.011, 0.012, 0.012, 0.012}};
  const auto verdict = [&](double threshold) {
    ChangeConfig config;
    config.threshold = threshold;
    return Compare(a, b, config).verdict;
  };
  EXPECT_EQ(verdict(0.05), Verdict::kInconclusive);
  EXPECT_EQ(verdict(20), Verdict::kEquivalent);
  // b - a is within 95 % of a's mean, but that mean is uncertain too.
  EXPECT_LT(Compare(a, b).interval.high, 0.95 * 0.0085);
  EXPECT_EQ(verdict(0.95), Verdict::kInconclusive);
}

TEST(Verdict, SmallPartsOfTheStepDoNotCount) {
  // Twice the wait for data, but only 0.2 % of the step.
  const MetricSample a{"data_wait_seconds", Around(0.0002), 0.1};
  const MetricSample b{"data_wait_seconds", Around(0.0004), 0.1};
  EXPECT_EQ(Compare(a, b).verdict, Verdict::kEquivalent);
  const MetricSample large_a{"data_wait_seconds", Around(0.002), 0.1};
  const MetricSample large_b{"data_wait_seconds", Around(0.004), 0.1};
  EXPECT_EQ(Compare(large_a, large_b).verdict, Verdict::kWorse);
  // The means differ by 0.4 % of the step; the true difference may exceed 1 %.
  const MetricSample noisy_a{"data_wait_seconds", {0.0001, 0.0019}, 0.1};
  const MetricSample noisy_b{"data_wait_seconds", {0.0003, 0.0025}, 0.1};
  EXPECT_EQ(Compare(noisy_a, noisy_b).verdict, Verdict::kInconclusive);
  // A part of more than a fifth of the step is judged by its ratio.
  const MetricSample most_a{"data_wait_seconds", Around(0.03), 0.1};
  const MetricSample most_b{"data_wait_seconds", Around(0.033), 0.1};
  EXPECT_FALSE(Compare(most_a, most_b).by_difference);
  EXPECT_EQ(Compare(most_a, most_b).verdict, Verdict::kWorse);
}

TEST(Verdict, OutOfNothingIsJudgedByTheStep) {
  const MetricSample none{"comm_wait_seconds", {0, 0, 0, 0, 0}, 0.1};
  const Change half = Compare(none, {"comm_wait_seconds", Around(0.05), 0.1});
  EXPECT_EQ(half.verdict, Verdict::kWorse);
  EXPECT_EQ(Compare(none, {"comm_wait_seconds", Around(0.0005), 0.1}).verdict,
            Verdict::kEquivalent);  // 0.5 % of the step
  EXPECT_EQ(
      Compare(none, {"comm_wait_seconds", {0, 0, 0.05, 0.05, 0.05}}).verdict,
      Verdict::kInconclusive);  // p = 0.07
  EXPECT_EQ(Compare({"comm_wait_seconds", Around(0.05), 0.1}, none).verdict,
            Verdict::kBetter);
}

TEST(GateExitCode, WorseComesBeforeInconclusive) {
  const auto code = [](std::vector<double> steps, std::vector<double> bytes,
                       const std::string& missing) {
    const RecordSet a =
        SetOf({{"step_seconds", Around(1)}, {"peak_bytes", Around(1e9)}});
    const RecordSet b = SetOf(
        {{"step_seconds", std::move(steps)}, {"peak_bytes", std::move(bytes)}});
    return GateExitCode(*CompareRecordSets(a, b, {}), missing);
  };
  EXPECT_EQ(code(Around(1), Around(1e9), ""), 0);
  EXPECT_EQ(code(Around(0.5), Around(0.95e9), ""), 0);
  EXPECT_EQ(code(Around(1), Around(1e9), "B lacks something"), 3);
  EXPECT_EQ(code(Around(1.05), Around(1e9), ""), 3);
  EXPECT_EQ(code({1}, Around(1e9), ""), 3);
  EXPECT_EQ(code({1}, Around(1.5e9), "B lacks something"), 1);
}

TEST(MissingText, IsEmptyIfBLacksNothing) {
  RecordSet a = SetOf({{"step_seconds", Around(1)}});
  const RecordSet b = a;
  EXPECT_EQ(MissingText(*CompareRecordSets(a, b, {})), "");
  a.configurations.push_back(a.configurations[0]);
  a.configurations[1].identity = {{"ranks", "4"}};
  EXPECT_NE(MissingText(*CompareRecordSets(a, b, {})), "");
  EXPECT_EQ(CompareRecordSets(a, b, {})->lost.size(), 1u);
  EXPECT_EQ(MissingText(*CompareRecordSets(b, a, {})), "");
}

TEST(CompareRecordSets, SaysWhereTheCodeChangedBetweenRepetitions) {
  RecordSet a = SetOf({{"step_seconds", Around(1)}});
  const RecordSet b = a;
  a.configurations[0].code_versions = {"source 1", "source 2"};
  EXPECT_THAT(CompareRecordSets(a, b, {})->remarks,
              ElementsAre("ddp on 2 ranks, batch 32: its repetitions in A ran "
                          "different code (source 1, source 2)"));
}

TEST(CompareRecordSets, MetricsThatAreZeroOrNotAskedForAreLeftOut) {
  const RecordSet set = SetOf({{"step_seconds", Around(1)},
                               {"examples_per_second", Around(64)},
                               {"comm_wait_seconds", {0, 0}, 1}});
  EXPECT_EQ(CompareRecordSets(set, set, {})->changes.size(), 2u);
  ChangeConfig config;
  config.metrics = {"examples_per_second"};
  const auto comparison = CompareRecordSets(set, set, config);
  ASSERT_EQ(comparison->changes.size(), 1u);
  EXPECT_EQ(comparison->changes[0].metric->name, "examples_per_second");
  config.metrics = {"call_seconds"};
  EXPECT_THAT(CompareRecordSets(set, set, config).status().message(),
              HasSubstr("have none of --metrics=call_seconds"));
}

TEST(CompareRecordSets, NothingInCommonNamesTheNearest) {
  RecordSet a = SetOf({{"step_seconds", {1}}});
  RecordSet b = a;
  a.path = "before";
  b.path = "after";
  a.configurations[0].flags = {{"lr", "0.1"}};
  b.configurations[0].flags = {{"lr", "0.2"}};
  EXPECT_EQ(CompareRecordSets(a, b, {}).status().message(),
            "before and after have no configuration in common. ddp on 2 ranks, "
            "batch 32 is in both, but for --lr: \"0.1\" and \"0.2\"; "
            "--ignore_flags=NAME compares across a flag");
  ChangeConfig config;
  config.ignored_flags = {"lr"};
  EXPECT_TRUE(CompareRecordSets(a, b, config).ok());
}

TEST(CompareRecordSets, RefusesACopyOfARun) {
  RecordSet a = SetOf({{"step_seconds", Around(1)}});
  RecordSet b = a;
  b.path = "copies";
  a.run_ids = {"1", "2"};
  b.run_ids = {"2", "3"};
  EXPECT_EQ(CompareRecordSets(a, b, {}).status().message(),
            "the run 2 is in both records and copies, and a run is not "
            "compared with a copy of itself: remove it from one of the two");
  b.run_ids = {"3"};
  EXPECT_TRUE(CompareRecordSets(a, b, {}).ok());
}

TEST(CompareRecordSets, SaysWhatOnlyOneSideHas) {
  RecordSet a = SetOf({{"step_seconds", {1}}});
  RecordSet b = a;
  b.configurations.push_back(b.configurations[0]);
  b.configurations[1].name = "ddp on 4 ranks, batch 16";
  b.configurations[1].identity = {{"ranks", "4"}};
  b.configurations[0].flags = {{"new", "1"}};
  const auto comparison = CompareRecordSets(a, b, {});
  EXPECT_THAT(comparison->remarks,
              ElementsAre("ddp on 2 ranks, batch 32: only B has --new=1",
                          "only in B: ddp on 4 ranks, batch 16"));
}

TEST(CompareRecordSets, SaysWhichMetricOnlyOneSideHas) {
  const RecordSet a = SetOf({{"step_seconds", Around(1)},
                             {"comm_wait_seconds", {0, 0}},
                             {"peak_bytes", Around(1e9)}});
  const RecordSet b = SetOf({{"step_seconds", Around(1)}});
  const auto lost = CompareRecordSets(a, b, {});
  EXPECT_THAT(lost->remarks,
              ElementsAre("only in A: ddp on 2 ranks, batch 32, peak_bytes"));
  EXPECT_THAT(lost->lost, ElementsAre("ddp on 2 ranks, batch 32, peak_bytes"));
  const auto added = CompareRecordSets(b, a, {});
  EXPECT_THAT(added->remarks,
              ElementsAre("only in B: ddp on 2 ranks, batch 32, peak_bytes"));
  EXPECT_THAT(added->lost, ElementsAre());
  ChangeConfig config;
  config.metrics = {"step_seconds"};
  EXPECT_THAT(CompareRecordSets(a, b, config)->remarks, ElementsAre());
}

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

TEST(ParseMetrics, NamesOrAll) {
  EXPECT_THAT(*ParseMetrics("peak_bytes,step_seconds"),
              ElementsAre("peak_bytes", "step_seconds"));
  EXPECT_EQ(ParseMetrics("")->size(), 6u);
  EXPECT_EQ(ParseMetrics("step_seconds,speed").status().message(),
            "--metrics=step_seconds,speed: there is no \"speed\"; there are "
            "step_seconds, examples_per_second, comm_wait_seconds, "
            "data_wait_seconds, peak_bytes, call_seconds");
  EXPECT_FALSE(ParseMetrics("step_seconds,").ok());
}

TEST(Metric, OnlyARateIsBetterHigher) {
  EXPECT_TRUE(MetricNamed("examples_per_second").higher_is_better());
  EXPECT_FALSE(MetricNamed("step_seconds").higher_is_better());
  EXPECT_FALSE(MetricNamed("peak_bytes").higher_is_better());
  EXPECT_TRUE(MetricNamed("data_wait_seconds").part_of_step);
}

TEST(FormatValue, HasAUnitThatFits) {
  EXPECT_EQ(FormatValue(MetricNamed("step_seconds"), 0.01234), "12.34 ms");
  EXPECT_EQ(FormatValue(MetricNamed("call_seconds"), 2.5e-7), "0.25 us");
  EXPECT_EQ(FormatValue(MetricNamed("step_seconds"), 3), "3 s");
  EXPECT_EQ(FormatValue(MetricNamed("step_seconds"), -0.002), "-2 ms");
  EXPECT_EQ(FormatValue(MetricNamed("peak_bytes"), 1.5e9), "1.5 GB");
  EXPECT_EQ(FormatValue(MetricNamed("examples_per_second"), 640), "640 /s");
}

}  // namespace
}  // namespace rankwise
