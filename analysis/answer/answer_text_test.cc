#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "analysis/answer/answer.h"
#include "analysis/runs/trace_for_test.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(std::vector<RunTrace> runs,
                   const AnswerConfig& config = {}) {
  return AnswerText(*Analyze(std::move(runs), config));
}

// Three repetitions of single, ddp on 1 rank, and ddp on 2 ranks under strong
// and weak scaling.
std::vector<RunTrace> Study() {
  std::vector<RunTrace> runs;
  for (int repetition = 0; repetition < 3; ++repetition) {
    runs.push_back(MakeRun({.binary = "single", .step_seconds = 0.1}));
    runs.push_back(MakeRun({.step_seconds = 0.1}));
    runs.push_back(
        MakeRun({.world_size = 2, .batch_size = 32, .step_seconds = 0.0625}));
    runs.push_back(MakeRun({.world_size = 2, .step_seconds = 0.125}));
  }
  return runs;
}

TEST(AnswerText, OpensWithTheTableOfScaling) {
  EXPECT_THAT(
      TextOf(Study()),
      HasSubstr(
          "Base case: single on 1 rank, 1 thread per rank, batch 64. Runs "
          "have 10 steps after warm-up; rates are geometric means over "
          "runs, shares medians; waits are shares of all ranks' time.\n\n"
          "trainer  scaling  ranks  batch/rank  runs  images/s  speedup  "
          "efficiency   95 % interval  comm wait  data wait\n"
          "-------------------------------------------------------------"
          "-------------------------------------------------\n"
          "single   base         1          64     3       640     1.00  "
          "         -               -     10.0 %      5.0 %\n"
          "ddp      both         1          64     3       640     1.00  "
          "   100.0 %  [100.0, 100.0]     10.0 %      5.0 %\n"
          "ddp      strong       2          32     3      1024     1.60  "
          "    80.0 %    [80.0, 80.0]     10.0 %      5.0 %\n"
          "ddp      weak         2          64     3      1024     1.60  "
          "    80.0 %    [80.0, 80.0]     10.0 %      5.0 %\n\n"));
}

// Only an interval without conditions is called a 95 % interval.
TEST(FindingsOf, APredictionsIntervalIsCalledWhatItIs) {
  const auto answer = Analyze(Study(), {});
  ASSERT_TRUE(answer);
  Prediction prediction;
  prediction.layout.dp = 4;
  prediction.examples_per_second = 100;
  prediction.examples_interval = {90, 110};
  const auto sentence = [&] {
    answer->predictions = {prediction};
    for (const Finding& finding : FindingsOf(*answer)) {
      if (finding.title == "What happens at the next size") return finding.text;
    }
    return std::string();
  };
  EXPECT_THAT(sentence(), HasSubstr("(95 % interval [90, 110])"));
  prediction.conditions = {"launches alike"};
  EXPECT_THAT(sentence(), HasSubstr("(range, if launches alike: [90, 110])"));
  prediction.examples_interval.high = std::numeric_limits<double>::infinity();
  EXPECT_THAT(sentence(), HasSubstr("(range, if launches alike: from 90 up)"));
}

TEST(AnswerText, PredictionsOfAllSizesAreRowsAndTheirExtrapolationsNotes) {
  const auto answer = Analyze(Study(), {});
  for (int64_t ranks : {4, 8}) {
    Prediction& one = answer->predictions.emplace_back();
    one.layout.dp = ranks;
    one.layout.micro_batch = 32;
    one.step_seconds = 0.1;
    one.examples_per_second = 320.0 * static_cast<double>(ranks);
    one.examples_interval = {300.0 * static_cast<double>(ranks),
                             330.0 * static_cast<double>(ranks)};
    one.extrapolations = {"ddp ran on no more than 2 ranks"};
    one.conditions = {"launches alike"};
  }
  EXPECT_THAT(WhatComesNext(*answer).text,
              AllOf(HasSubstr("batch of 32 per rank"), HasSubstr("1280 "),
                    HasSubstr("[1200, 1320]"), HasSubstr("on 4 ranks"),
                    Not(HasSubstr("8 ranks"))));
  const std::string text = AnswerText(*answer);
  EXPECT_THAT(text, ContainsRegex("\nddp x8 \\* +8 +32 +100.00 .* +2560 "
                                  "+.2400, 2640. +range, if launches alike "));
  const std::string note =
      "\n* Beyond what was measured: ddp ran on no more than 2 ranks.\n";
  const size_t at = text.find(note);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find(note, at + 1), std::string::npos) << text;
}

TEST(AnswerText, RatesCountTokensOrWhereCellsDifferExamples) {
  std::vector<RunTrace> runs = {
      MakeRun({.binary = "single", .tokens_per_example = 128}),
      MakeRun({.world_size = 2, .tokens_per_example = 128})};
  const std::string tokens = TextOf(runs);  // 640 and 1280 examples/s
  EXPECT_THAT(tokens, HasSubstr("  tokens/s  "));
  EXPECT_THAT(tokens, HasSubstr("   81920  "));
  EXPECT_THAT(tokens, HasSubstr("  163840  "));
  EXPECT_THAT(tokens, Not(HasSubstr("images/s")));
  runs.push_back(MakeRun({.world_size = 4}));  // images
  const std::string mixed = TextOf(runs);
  EXPECT_THAT(mixed, HasSubstr("  examples/s  "));
  EXPECT_THAT(mixed, HasSubstr("     1280  "));
  EXPECT_THAT(mixed, Not(HasSubstr("tokens/s")));
}

TEST(AnswerText, ShowsMfuWhereAPeakIsStated) {
  std::vector<RunTrace> runs = Study();
  EXPECT_THAT(TextOf(runs), Not(HasSubstr("MFU")));
  for (RunTrace& run : runs) {
    if (run.ranks[0].run.binary == "single") continue;
    for (RankTrace& rank : run.ranks) {
      rank.run.forward_flops_per_example = 1e11;
      rank.run.flags["peak_tflops"] = "1000";
    }
  }
  const std::string text = TextOf(runs);
  EXPECT_THAT(text, HasSubstr("comm wait  data wait     MFU\n"));
  // 512 examples/s on each of two ranks.
  EXPECT_THAT(text, HasSubstr("[80.0, 80.0]     10.0 %      5.0 %  15.4 %"));
  EXPECT_THAT(text, HasSubstr("MFU: 3 x the model's forward operations, of the "
                              "stated 1000 TFLOPS of every device.\n"));
  EXPECT_THAT(text, Not(HasSubstr("this stated peak is too low")));
  // The base states no peak to compare with.
  EXPECT_THAT(text, Not(HasSubstr("its base case's")));
  for (RunTrace& run : runs) {
    for (RankTrace& rank : run.ranks) rank.run.flags["peak_tflops"] = "100";
  }
  EXPECT_THAT(TextOf(runs),
              HasSubstr("Above 100 %, this stated peak is too low"));
}

// A cell that computed faster than the measured peak shows that the
// measurement was too low.
TEST(AnswerText, NoShareOfAMeasuredPeakIsAbove100Percent) {
  std::vector<RunTrace> runs = Study();
  for (RunTrace& run : runs) {
    for (RankTrace& rank : run.ranks) {
      rank.run.forward_flops_per_example = 1e11;
      rank.run.peak_flops_per_second = 1.8e14;
      rank.run.step_bytes = 1e9;
      rank.run.peak_bytes_per_second = 1e9;
    }
  }
  // 640 examples/s of 0.3 TFLOP on one rank, 512 on each of two.
  const std::string text = TextOf(runs);
  EXPECT_THAT(text, HasSubstr("\nNo MFU: ddp on 1 rank (1.07 times the "
                              "measured 180 TFLOPS), single on 1 rank (1.07 "
                              "times the measured 180 TFLOPS) computed faster "
                              "than the measured peak"));
  EXPECT_THAT(text, HasSubstr("85.3 %")) << "of ddp on 2 ranks";
  EXPECT_THAT(text, Not(HasSubstr("106.7 %")));
  EXPECT_THAT(text, Not(HasSubstr("this stated peak is too low")));
  EXPECT_THAT(text, Not(HasSubstr("its base case's")));
}

TEST(AnswerText, SaysHowFarTheBaseAndTheRanksAreFromTheHardware) {
  std::vector<RunTrace> runs = Study();
  const auto state_peak = [&runs](const std::string& binary,
                                  const std::string& tflops) {
    for (RunTrace& run : runs) {
      if (run.ranks[0].run.binary != binary) continue;
      for (RankTrace& rank : run.ranks) {
        rank.run.forward_flops_per_example = 1e11;
        rank.run.flags["peak_tflops"] = tflops;
      }
    }
  };
  state_peak("single", "1000");
  state_peak("ddp", "1000");
  // 640 examples/s on one rank, 512 on each of two, of 0.3 TFLOP.
  EXPECT_THAT(TextOf(runs),
              HasSubstr("80.0 % efficiency, 95 % interval [80.0, 80.0]; MFU "
                        "15.4 %, its base case's 19.2 %."));
  state_peak("single", "500");  // shares of two peaks are not comparable
  EXPECT_THAT(TextOf(runs), Not(HasSubstr("its base case's")));
  state_peak("single", "100");  // 192 %
  state_peak("ddp", "100");
  EXPECT_THAT(TextOf(runs), Not(HasSubstr("its base case's")));
}

TEST(AnswerText, ComparesWithTheBestPeakThatRunsOfOneHostMeasured) {
  std::vector<RunTrace> runs = Study();
  const auto each_rank = [&runs](const auto& change) {
    for (RunTrace& run : runs) {
      for (RankTrace& rank : run.ranks) change(rank.run);
    }
  };
  each_rank([](RunRecord& run) {
    run.forward_flops_per_example = 1e11;
    run.flags["precision"] = "fp32";
    // The first measurement was disturbed.
    run.peak_flops_per_second = run.binary == "single" ? 0.8e15 : 1e15;
  });
  const std::string sentence = "; MFU 15.4 %, its base case's 19.2 %.";
  const std::string text = TextOf(runs);
  EXPECT_THAT(text, HasSubstr(sentence));
  EXPECT_THAT(text, HasSubstr("of the measured 1e+03 TFLOPS of every device."));

  const auto without = [&](const auto& change) {
    const std::vector<RunTrace> before = runs;
    each_rank([&](RunRecord& run) {
      if (run.binary == "single") change(run);
    });
    EXPECT_THAT(TextOf(runs), Not(HasSubstr("its base case's")));
    runs = before;
  };
  without([](RunRecord& run) { run.flags["peak_tflops"] = "800"; });
  without([](RunRecord& run) { run.host.hostname = "another"; });
  EXPECT_THAT(TextOf(runs), HasSubstr(sentence));
}

TEST(AnswerText, SaysWhetherOverheadGrowsWithTheRanks) {
  std::vector<RunTrace> runs = Study();
  for (int i = 0; i < 3; ++i) {
    runs.push_back(
        MakeRun({.world_size = 4, .batch_size = 16, .step_seconds = 0.06}));
  }
  EXPECT_THAT(
      TextOf(runs),
      HasSubstr("The serial fraction of ddp (Karp and Flatt, strong scaling) "
                "rises from 25.0 % on 2 ranks to 46.7 % on 4: overhead that "
                "grows with the ranks"));
}

TEST(AnswerText, SaysInWordsHowWellItScales) {
  const std::string text = TextOf(Study());
  EXPECT_THAT(
      text,
      HasSubstr(
          "How well it scales\n"
          "  Strong scaling: ddp on 2 ranks, with the same global batch of 64, "
          "trains 1.60 times as fast as single on 1 rank (ideal 2): 80.0 % "
          "efficiency, 95 % interval [80.0, 80.0].\n"
          "  Weak scaling: ddp on 2 ranks, with the same batch of 64 per rank, "
          "trains 1.60 times as fast as single on 1 rank (ideal 2): 80.0 % "
          "efficiency, 95 % interval [80.0, 80.0].\n"));
}

RunTrace Pipeline(const std::string& schedule, double step_seconds) {
  return MakeRun({.binary = "pipeline",
                  .world_size = 2,
                  .batch_size = 16,
                  .step_seconds = step_seconds,
                  .schedule = schedule});
}

TEST(AnswerText, PipelinesAreRowsOfTheirSchedule) {
  std::vector<RunTrace> runs = Study();
  for (int repetition = 0; repetition < 2; ++repetition) {
    runs.push_back(Pipeline("1f1b", 0.08));
    runs.push_back(Pipeline("gpipe", 0.1));
  }
  const std::string text = TextOf(runs);
  EXPECT_THAT(text, HasSubstr("\npipeline 1f1b   strong       2          32    "
                              " 2       800     1.25      62.5 %"));
  EXPECT_THAT(text, HasSubstr("\npipeline gpipe  strong       2          32    "
                              " 2       640     1.00      50.0 %"));
  EXPECT_THAT(text, HasSubstr("\npipeline        ranks  micro-batches"));
  EXPECT_THAT(text, HasSubstr("\npipeline 1f1b       2         4 x 16"));
  // The fastest on 2 ranks, although not the last row.
  EXPECT_THAT(text, HasSubstr("Strong scaling: ddp on 2 ranks"));
  runs.push_back(Pipeline("zbv", 0.05));
  runs.push_back(Pipeline("zbv", 0.05));
  EXPECT_THAT(TextOf(runs),
              HasSubstr("Strong scaling: pipeline zbv on 2 ranks, with the "
                        "same global batch of 64, trains 2.00 times"));
}

// Makes all time of a step that is not data wait part of the backward pass.
void FillLedgers(std::vector<RunTrace>& runs) {
  for (RunTrace& run : runs) {
    for (RankTrace& rank : run.ranks) {
      for (StepRecord& step : rank.steps) {
        step.backward_seconds = step.step_seconds - step.data_wait_seconds;
      }
    }
  }
}

TEST(AnswerText, ABaseOfASmallerBatchExplainsALossAndHidesNone) {
  std::vector<RunTrace> runs = Study();
  for (int repetition = 0; repetition < 3; ++repetition) {
    runs.push_back(
        MakeRun({.binary = "single", .batch_size = 32, .step_seconds = 0.06}));
  }
  FillLedgers(runs);
  const std::string text = TextOf(runs);
  // Not also under weak scaling from single with a batch of 32.
  EXPECT_THAT(text, HasSubstr("\nddp      strong       2          32"));
  EXPECT_THAT(text, Not(HasSubstr("\nddp      weak         2          32")));
  EXPECT_THAT(text, Not(HasSubstr("\nsingle   base         1          32")));
  // Half the batch takes 60 instead of 50 ms on one rank: 85 % of these 10 ms
  // are compute, of a step of 62.5 ms.
  EXPECT_THAT(text,
              ContainsRegex("\nddp +2 +32 +strong +80.0 % +smaller batches "
                            "+13.6 +8.50 +.8.50, 8.50."));
}

TEST(AnswerText, RefusalsAreSaidUnderTheTable) {
  std::vector<RunTrace> runs = Study();
  runs.push_back(MakeRun({.world_size = 4, .batch_size = 48}));
  EXPECT_THAT(
      TextOf(runs),
      HasSubstr("No efficiency: ddp on 4 ranks and its base case single on 1 "
                "rank differ in the global batch, which strong scaling keeps "
                "constant: 192 and 64"));
}

TEST(AnswerText, ControlCharactersOfRecordsDoNotReachTheTerminal) {
  std::vector<RunTrace> runs = Study();
  for (RunTrace& run : runs) {
    for (RankTrace& rank : run.ranks) {
      if (rank.run.binary == "ddp") rank.run.binary += "\x1b[2J";
    }
  }
  const std::string text = TextOf(std::move(runs));
  EXPECT_THAT(text, HasSubstr("ddp?[2J"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(AnswerText, OneRepetitionGivesNoEfficiency) {
  const std::string text =
      TextOf({MakeRun({.binary = "single"}), MakeRun({.world_size = 2})});
  EXPECT_THAT(text, HasSubstr("No efficiency: nothing could be compared"));
  EXPECT_THAT(text, HasSubstr("single on 1 rank has 1 repetition"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(AnswerText, OfOneWorldSizeItSaysNothingAboutScaling) {
  std::vector<RunTrace> runs;
  for (int repetition = 0; repetition < 2; ++repetition) {
    runs.push_back(MakeRun({.binary = "single"}));
  }
  EXPECT_THAT(TextOf(runs), Not(HasSubstr("How well it scales")));
  for (int repetition = 0; repetition < 2; ++repetition) {
    runs.push_back(MakeRun({.step_seconds = 0.125}));
  }
  const std::string same =
      "ddp on 1 rank trains 0.80 times as fast as single on 1 rank, with the "
      "same global batch and the same batch per rank. That says nothing about "
      "scaling: ";
  EXPECT_THAT(TextOf(runs),
              HasSubstr(same + "run on more ranks (--world_sizes).\n"));
  EXPECT_THAT(TextOf(runs), Not(HasSubstr("notes below")));
  runs.push_back(MakeRun({.world_size = 2}));  // a single repetition
  EXPECT_THAT(TextOf(runs), HasSubstr(same + "the notes below say why"));
}

TEST(AnswerText, OversubscribedRowsAreMarkedWhereTheyWereAskedFor) {
  std::vector<RunTrace> runs = Study();
  for (int i = 0; i < 2; ++i) runs.push_back(MakeRun({.world_size = 9}));
  const std::string refused = TextOf(runs);  // 9 ranks, 8 cores
  EXPECT_THAT(refused, HasSubstr("No efficiency: "));
  AnswerConfig config;
  config.comparison.allow_oversubscribed = true;
  const std::string text = TextOf(runs, config);
  EXPECT_THAT(text, HasSubstr("\nddp*     weak         9"));
  EXPECT_THAT(text, HasSubstr("* more threads than cores"));
}

TEST(AnswerText, ForcedComparisonsCarryAMark) {
  std::vector<RunTrace> runs = Study();
  for (int i = 0; i < 2; ++i) {
    runs.push_back(MakeRun({.world_size = 4, .batch_size = 16}));
    for (RankTrace& rank : runs.back().ranks) rank.run.source_hash = "abc";
  }
  EXPECT_THAT(TextOf(runs), HasSubstr("No efficiency: "));
  AnswerConfig config;
  config.comparison.force = true;
  const std::string text = TextOf(runs, config);
  EXPECT_THAT(text, HasSubstr("\nddp!     strong       4"));
  EXPECT_THAT(text, HasSubstr("! Forced: "));
}

TEST(AnswerText, AForcedFigureOfOneRepetitionHasNoInterval) {
  AnswerConfig config;
  config.comparison.force = true;
  const std::string text = TextOf(
      {MakeRun({.binary = "single"}), MakeRun({.world_size = 2})}, config);
  EXPECT_THAT(text, HasSubstr("100.0 % efficiency (forced)."));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(AnswerText, CapturedStepsAreSaidToHideCommunication) {
  std::vector<RunTrace> runs = Study();
  FillLedgers(runs);
  for (RunTrace& run : runs) CaptureSteps(run);
  const std::string text = TextOf(runs);
  EXPECT_THAT(
      text,
      HasSubstr("ddp      strong       2          32     3      1024     1.60  "
                "    80.0 %    [80.0, 80.0]          -      5.0 %\n"));
  EXPECT_THAT(text,
              HasSubstr("Captured steps: compute holds forward, backward, "
                        "communication and update, which one graph "
                        "launch does not separate (single on 1 rank, "
                        "batch 64; "));
  EXPECT_THAT(text, HasSubstr("not separated from communication within "
                              "captured steps, for want of the same run, "
                              "captured, with --skip_communication"));
  EXPECT_THAT(text, HasSubstr("it is not recorded which rank waits for which"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(AnswerText, RunsLeftOutAreNamed) {
  std::vector<RunTrace> runs = Study();
  runs.push_back(MakeRun({.steps = 2, .run_id = "killed"}));
  EXPECT_THAT(TextOf(runs),
              HasSubstr("Left out: killed.jsonl: 2 steps leave 0"));
}

TEST(AnswerText, NothingToReport) {
  EXPECT_EQ(TextOf({}), "No run could be measured.\n");
}

}  // namespace
}  // namespace rankwise
