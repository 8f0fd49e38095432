#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/compare/comparison.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RecordSet SetOf(const std::string& path, const std::string& unit,
                std::vector<double> seconds) {
  RecordSet set;
  set.path = path;
  set.runs = set.jobs = seconds.size();
  set.made_by = {"commit abc, torch 2.11.0, A CPU"};
  Configuration configuration;
  configuration.name = "ddp on 2 ranks, batch 32";
  configuration.unit = unit;
  configuration.samples = {{"step_seconds", std::move(seconds)}};
  set.configurations = {configuration};
  return set;
}

std::string TextOf(const RecordSet& a, const RecordSet& b) {
  const ChangeConfig config;
  return ComparisonText(a, b, *CompareRecordSets(a, b, config), config);
}

TEST(ComparisonText, IsTheSidesTheTableAndTheResult) {
  EXPECT_EQ(
      TextOf(SetOf("before", "run", {0.1, 0.1, 0.1, 0.1}),
             SetOf("after", "run", {0.12, 0.12, 0.12, 0.12, 0.12})),
      "A: before, 4 runs; commit abc, torch 2.11.0, A CPU\n"
      "B: after, 5 runs; commit abc, torch 2.11.0, A CPU\n\n"
      "configuration             metric        verdict  repetitions       A    "
      "   B    B/A   95 % interval  p (Holm)\n"
      "------------------------------------------------------------------------"
      "-"
      "------------------------------------\n"
      "ddp on 2 ranks, batch 32  step_seconds  slower   4/5 runs     100 ms  "
      "120 ms  1.200  [1.200, 1.200]    <0.001\n\n"
      "Repetitions of trainers are runs, never steps.\n"
      "Worse by more than 5 %: ddp on 2 ranks, batch 32, step_seconds "
      "(1.200 [1.200, 1.200]).\n");
}

TEST(ComparisonText, PartsOfAJobAreCountedAsOneJob) {
  RecordSet a = SetOf("before", "run", {0.1, 0.1, 0.1, 0.1});
  const RecordSet b = SetOf("after", "run", {0.1, 0.1, 0.1, 0.1});
  a.runs = 6;
  EXPECT_THAT(TextOf(a, b), HasSubstr("A: before, 6 runs (4 jobs); commit"));
}

TEST(ComparisonText, ARatioToNothingIsNoNumber) {
  const RecordSet a = SetOf("a", "run", {0, 0, 0, 0});
  const RecordSet b = SetOf("b", "run", {1, 1, 1, 1});
  EXPECT_THAT(TextOf(a, b),
              HasSubstr("batch 32, step_seconds (from 0 B-A [1 s, 1 s]).\n"));
  EXPECT_THAT(TextOf(a, b),
              HasSubstr("\nB-A is judged instead of B/A if a repetition "
                        "is 0, and for parts of the step for which the "
                        "threshold is less than 1 % of A's step.\n"));
  EXPECT_THAT(ComparisonCsv(*CompareRecordSets(a, b, {})),
              HasSubstr(",0,1,,,,1,1,0,0\n"));
}

TEST(ComparisonText, SaysThatRepetitionsAreTooFew) {
  const std::string text =
      TextOf(SetOf("a", "launch", {1}), SetOf("b", "launch", {3, 3}));
  EXPECT_THAT(text, HasSubstr("  cannot say  1/2 launches "));
  EXPECT_THAT(text, HasSubstr("1 of 1 figures cannot be judged with fewer than "
                              "2 repetitions on each side"));
  EXPECT_THAT(text, HasSubstr("Repetitions of collectives are launches"));
  EXPECT_THAT(text, HasSubstr("\nCannot say for 1 of 1 figures, which may be "
                              "worse by more than 5 %: ddp on 2 ranks, batch "
                              "32, step_seconds (3.000 of 1/2 launches); "
                              "more "));
}

TEST(ComparisonText, SaysForHowManyFiguresPIsCorrected) {
  RecordSet a = SetOf("a", "run", {1, 1.1, 1.2, 1.3});
  a.configurations[0].samples["peak_bytes"] = {5, 6};
  EXPECT_THAT(TextOf(a, a),
              HasSubstr("\np is corrected for 2 figures (Holm 1979).\n"));
}

TEST(ComparisonText, WarnsOfIterations) {
  const std::string text = TextOf(SetOf("a", "iteration", {1}),
                                  SetOf("b", "iteration", {1, 1, 1, 1}));
  EXPECT_THAT(text, HasSubstr("1/4 iterations"));
  EXPECT_THAT(text, HasSubstr("are not independent "));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(ComparisonText, NamesTheFirstInconclusiveFigures) {
  RecordSet a = SetOf("a", "run", {1, 1.3, 0.8, 1.1, 0.9});
  EXPECT_THAT(TextOf(a, SetOf("b", "run", {1.2, 1.5, 0.85, 1.25, 0.95})),
              HasSubstr("\nCannot say for 1 of 1 figures, which may be worse "
                        "by more than 5 %: ddp on 2 ranks, batch 32, "
                        "step_seconds (1.120 [0.826, 1.519]); more repetitions "
                        "may decide.\n"));
  for (int i = 1; i < 7; ++i) {
    a.configurations.push_back(a.configurations[0]);
    a.configurations[i].identity = {{"ranks", std::to_string(i)}};
  }
  const std::string text = TextOf(a, a);
  EXPECT_THAT(text, HasSubstr("\nCannot say for 7 of 7 figures, which may be"));
  EXPECT_THAT(text, HasSubstr("; and 2 more; more repetitions may decide"));
}

TEST(ComparisonText, WorseComesBeforeInconclusive) {
  RecordSet a = SetOf("a", "run", {1, 1.01});
  RecordSet b = SetOf("b", "run", {2, 2.01});
  a.configurations[0].samples["peak_bytes"] = {5, 6};
  b.configurations[0].samples["peak_bytes"] = {5, 6};
  EXPECT_THAT(TextOf(a, b),
              HasSubstr("\nWorse by more than 5 %: ddp on 2 ranks, batch 32, "
                        "step_seconds (1.995 [1.928, 2.065]).\nCannot say "
                        "for 1 of 2 figures, which may be worse by more than 5 "
                        "%: "));
}

TEST(ComparisonText, NothingWorse) {
  RecordSet a = SetOf("a", "run", {1, 1.01, 0.99});
  EXPECT_THAT(TextOf(a, a),
              HasSubstr("\nEquivalent within 5 %: the one figure.\n"));
  RecordSet b = a;
  for (RecordSet* set : {&a, &b}) {
    set->configurations[0].samples["peak_bytes"] = {5, 5};
  }
  EXPECT_THAT(TextOf(a, b),
              HasSubstr("\nEquivalent within 5 %: all 2 figures.\n"));
  a.configurations[0].samples["call_seconds"] = {2, 2.02};
  b.configurations[0].samples["call_seconds"] = {1, 1.01};
  b.configurations[0].samples["step_seconds"] = {0.95, 0.97, 0.96};
  EXPECT_THAT(TextOf(a, b),
              HasSubstr("\nNot worse by more than 5 %: all 3 figures (1 "
                        "better, 1 equivalent, 1 equivalent or better).\n"));
  EXPECT_THAT(TextOf(a, b), HasSubstr("  not slower  "));
}

TEST(ComparisonText, WhatWasLeftOutIsNamed) {
  RecordSet a = SetOf("a", "run", {1, 1, 1, 1});
  RecordSet b = a;
  b.left_out = {"x.jsonl: 3 steps leave 0"};
  EXPECT_THAT(TextOf(a, b), HasSubstr("Left out of B: x.jsonl: 3 steps"));
}

TEST(ComparisonMarkdown, IsTheVerdictWhatChangedAndTheSides) {
  RecordSet a = SetOf("before_1", "run", {0.1, 0.1, 0.1, 0.1});
  RecordSet b = SetOf("after", "run", {0.12, 0.12, 0.12, 0.12, 0.12});
  for (RecordSet* set : {&a, &b}) {
    set->configurations[0].samples["peak_bytes"] = {5, 5, 5};
  }
  EXPECT_EQ(
      ComparisonMarkdown(a, b, *CompareRecordSets(a, b, {}), {}, ""),
      "### Performance: failed\n\n"
      "- Worse by more than 5 %: ddp on 2 ranks, batch 32, step\\_seconds "
      "(1.200 \\[1.200, 1.200\\]).\n\n"
      "| configuration | metric | verdict | repetitions | A | B | B/A | 95 % "
      "interval | p (Holm) |\n"
      "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
      "| ddp on 2 ranks, batch 32 | step\\_seconds | slower | 4/5 runs | 100 "
      "ms "
      "| 120 ms | 1.200 | \\[1.200, 1.200\\] | \\<0.001 |\n\n"
      "Equivalent: 1 of 2 figures.\n\n"
      "- A: before\\_1, 4 runs; commit abc, torch 2.11.0, A CPU\n"
      "- B: after, 5 runs; commit abc, torch 2.11.0, A CPU\n"
      "- Repetitions of trainers are runs, never steps.\n"
      "- p is corrected for 2 figures (Holm 1979).\n");
}

TEST(ComparisonMarkdown, HasNoTableWhereNothingChanged) {
  const RecordSet set = SetOf("a", "run", {1, 1.01, 0.99});
  const Comparison same = *CompareRecordSets(set, set, {});
  const std::string text = ComparisonMarkdown(set, set, same, {}, "");
  EXPECT_THAT(text, HasSubstr("passed\n\n- Equivalent within 5 %: the one"));
  EXPECT_THAT(text, Not(HasSubstr("|")));
  EXPECT_THAT(text, HasSubstr("\nEquivalent: 1 of 1 figures.\n"));
  EXPECT_THAT(ComparisonMarkdown(set, set, same, {}, "B lacks ddp.\n"),
              HasSubstr("cannot say\n\n- Equivalent within 5 %: the one "
                        "figure.\n- B lacks ddp.\n\n"));
}

TEST(ComparisonMarkdown, ShowsInconclusiveFigures) {
  const RecordSet set = SetOf("a", "run", {1, 1.1, 1.2, 1.3});
  const std::string text =
      ComparisonMarkdown(set, set, *CompareRecordSets(set, set, {}), {}, "");
  EXPECT_THAT(text, HasSubstr("### Performance: cannot say\n\n- Cannot say "
                              "for 1 of 1 figures, which may be worse"));
  EXPECT_THAT(text, HasSubstr(" | cannot say | 4 runs | "));
}

TEST(ComparisonCsv, HasALinePerChange) {
  const RecordSet a = SetOf("a", "run", {2}), b = SetOf("b", "run", {3});
  EXPECT_EQ(ComparisonCsv(*CompareRecordSets(a, b, {})),
            "configuration,metric,verdict,unit,repetitions_a,repetitions_b,a,b,"
            "ratio,ratio_low,ratio_high,difference_low,difference_high,p,"
            "corrected_p\n"
            "\"ddp on 2 ranks, batch 32\",step_seconds,cannot say,run,1,1,2,3,"
            "1.5,,,,,,\n");
}

}  // namespace
}  // namespace rankwise
