// From record files to the sentence that recommends a layout, for simulated
// machines with a known bottleneck.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/answer/answer.h"
#include "analysis/runs/made_layouts_for_test.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/trace_for_test.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct LayoutStudy {
  std::map<std::string, double> truth;  // examples/s
  std::string text;                     // AnswerText
  std::string advice;                   // the line in `text` that recommends

  std::string TrulyFastest() const {
    return std::max_element(
               truth.begin(), truth.end(),
               [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }
};

std::string StudyFolder() { return testing::TempDir() + "/layout_study"; }

LayoutStudy Make(const LayoutStudyConfig& config) {
  const std::string dir = StudyFolder();
  std::filesystem::remove_all(dir);
  std::filesystem::create_directory(dir);
  const auto truth = WriteLayoutStudy(dir, config);
  EXPECT_TRUE(truth.ok()) << truth.status();
  auto runs = LoadRuns(dir);
  EXPECT_TRUE(runs.ok()) << runs.status();
  if (!truth.ok() || !runs.ok()) return {};
  const std::string text = AnswerText(*Analyze(*std::move(runs), {}));
  const std::string title = "Which layout to use\n  ";
  const size_t begin = text.find(title);
  EXPECT_NE(begin, std::string::npos) << text;
  if (begin == std::string::npos) return {};
  const size_t from = begin + title.size();
  return {*truth, text, text.substr(from, text.find('\n', from) - from)};
}

TEST(WhichLayout, OnAFastLinkDataParallelism) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const LayoutStudy study =
        Make({.link_bytes_per_second = 1e10, .seed = seed});
    EXPECT_EQ(study.TrulyFastest(), "ddp");
    EXPECT_THAT(study.advice,
                HasSubstr("On 4 ranks, with the same global batch of 64 "
                          "(strong scaling), use ddp: "));
    EXPECT_THAT(study.text,
                ContainsRegex("\npipeline 1f1b  [^\n]* ms pipeline bubble\n"));
    EXPECT_THAT(study.advice, HasSubstr("Where memory is short: fsdp zero3"));
  }
}

TEST(WhichLayout, OnASlowLinkTheOneThatSendsLeast) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const LayoutStudy study =
        Make({.link_bytes_per_second = 1e9, .seed = seed});
    EXPECT_EQ(study.TrulyFastest(), "pipeline 1f1b");
    EXPECT_THAT(study.advice,
                HasSubstr("On 4 ranks, with the same global batch of 64 "
                          "(strong scaling), use pipeline 1f1b: "));
    EXPECT_THAT(study.text,
                ContainsRegex("\nddp  [^\n]* 1.8[0-9] [^\n]*  75 ms exposed "
                              "communication along dp\n"));
    EXPECT_THAT(study.text,
                ContainsRegex("\ntensor_parallel  [^\n]* ms exposed "
                              "communication along tp\n"));
  }
}

TEST(WhichLayout, InSmallMemoryTheOneThatHoldsTheLargestBatch) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const LayoutStudy study = Make({.link_bytes_per_second = 2e9,
                                    .memory_bytes = 216'000'000,
                                    .seed = seed});
    EXPECT_EQ(study.TrulyFastest(), "fsdp zero3");
    EXPECT_THAT(study.advice,
                ContainsRegex("On 4 ranks, with the same memory of [0-9]+ MB "
                              "per rank \\(fixed memory\\), use fsdp zero3: "));
    EXPECT_THAT(study.text,
                ContainsRegex("\nfsdp zero3 +fixed_memory +4 +160 "));
    EXPECT_THAT(study.text,
                ContainsRegex("\nddp +fixed_memory +4 +16 [^\n]* ms exposed "
                              "communication along dp\n"));
  }
}

TEST(WhichLayout, WithAStragglerNoLayoutHelps) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const LayoutStudy study =
        Make({.link_bytes_per_second = 1e12, .slower = 0.3, .seed = seed});
    EXPECT_THAT(study.advice, HasSubstr("as fast as each other within noise"));
    EXPECT_THAT(study.text,
                ContainsRegex("Rank 2 of [^\n]* It is slower in 3 of the 3 "
                              "layouts of 4 ranks, by 2[0-9.]* % of the step "
                              "at the median: no layout avoids that"));
    EXPECT_THAT(Make({.link_bytes_per_second = 1e12, .seed = seed}).text,
                Not(HasSubstr("no layout avoids that")));
  }
}

// Returns the advice for 2 ranks from two runs of ddp, with steps of 60 and
// 64 ms, and two of fsdp that take `times` as long and half of the memory.
std::string AdviceOfTwo(double times) {
  std::vector<RunTrace> runs;
  for (double seconds : {0.060, 0.064}) {
    runs.push_back(MakeRun({.binary = "single", .step_seconds = 0.1}));
    for (const char* trainer : {"ddp", "fsdp"}) {
      const bool is_ddp = trainer == std::string("ddp");
      runs.push_back(
          MakeRun({.binary = trainer,
                   .world_size = 2,
                   .batch_size = 32,
                   .step_seconds = is_ddp ? seconds : times * seconds}));
      for (RankTrace& rank : runs.back().ranks) {
        rank.memory.emplace().peak_host_bytes = is_ddp ? 200e6 : 100e6;
      }
    }
  }
  const auto answer = Analyze(std::move(runs), {});
  return answer->layouts.empty() ? "" : answer->layouts[0].advice;
}

TEST(WhichLayout, OfTwoThatAreAsFastTheOneThatHoldsLess) {
  EXPECT_THAT(AdviceOfTwo(1.02),
              AllOf(HasSubstr("use fsdp, whose fullest rank holds 100 MB "
                              "instead of 200 MB: "),
                    HasSubstr("2 of the 2 layouts are as fast as each other "
                              "within noise: ddp is the fastest, fsdp the "
                              "nearest."),
                    Not(HasSubstr("vary too much"))));
}

TEST(WhichLayout, ASlowerOneIsNotPreferredBecauseItsRunsVary) {
  EXPECT_THAT(
      AdviceOfTwo(1.12),
      AllOf(HasSubstr("use ddp: "),
            HasSubstr("The runs vary too much to say that it is faster than "
                      "fsdp; add --repetitions. Where memory is short: fsdp, "
                      "whose fullest rank holds 100 MB instead of 200 MB.")));
}

// Returns the number of comparisons of ddp with fsdp after `differ` changed the
// runs of fsdp and of its base case.
size_t Comparisons(const std::function<void(RunRecord&)>& differ) {
  std::vector<RunTrace> runs;
  for (double seconds : {0.060, 0.064}) {
    for (const char* trainer : {"ddp", "fsdp"}) {
      for (int64_t ranks : {1, 2}) {
        runs.push_back(MakeRun({.binary = ranks == 1 ? "single" : trainer,
                                .world_size = ranks,
                                .batch_size = 64 / ranks,
                                .step_seconds = seconds}));
        if (trainer == std::string("ddp")) continue;
        for (RankTrace& rank : runs.back().ranks) differ(rank.run);
      }
    }
  }
  return Analyze(std::move(runs), {})->layouts.size();
}

TEST(WhichLayout, ThoseOfDifferentMachinesAreNotCompared) {
  EXPECT_EQ(Comparisons([](RunRecord&) {}), 1u);
  EXPECT_EQ(Comparisons([](RunRecord& run) { run.host.cpu_model = "B CPU"; }),
            0u);
  EXPECT_EQ(Comparisons([](RunRecord& run) {
              run.devices = {absl::StrCat("cuda:", run.rank)};
            }),
            0u);
  EXPECT_EQ(Comparisons([](RunRecord& run) { run.threads_per_rank = 2; }), 0u);
}

TEST(WhichLayout, TheTableHasMemoryExposureByAxisAndBubble) {
  const LayoutStudy study = Make({.link_bytes_per_second = 1e9});
  EXPECT_THAT(study.text, ContainsRegex("layout +scaling +ranks +batch/rank"));
  // pipeline: 12.8 ms of messages and 12 ms of bubble; ddp: 75 ms of gradients
  EXPECT_THAT(
      study.text,
      ContainsRegex("pipeline 1f1b +strong +4 +16 +11[0-9]+ +.[0-9, ]+. "
                    "+fastest +66 +0.00 +0.00 +12.80 +0.00 +12.00"));
  EXPECT_THAT(
      study.text,
      ContainsRegex("ddp +strong +4 +16 +5[0-9]+ +.[0-9, ]+. +1.8[0-9] "
                    ".1.[0-9]+, 1.[0-9]+. +216 +0.00 +0.00 +0.00 +75.00 "
                    "+0.00"));
}

TEST(WhichLayout, TheTableHasSharesOfTheHardwaresLimitsWhereTheseAreKnown) {
  const LayoutStudy study = Make({.link_bytes_per_second = 1e9});
  const std::string table = "relative time +MB +";
  EXPECT_THAT(study.text, ContainsRegex(table + "tp "));
  std::vector<RunTrace> runs = *LoadRuns(StudyFolder());
  for (RunTrace& run : runs) {
    for (RankTrace& rank : run.ranks) {
      rank.run.forward_flops_per_example = 1e8;
      rank.run.peak_flops_per_second = 1e12;
      if (rank.run.binary == "ddp") continue;
      rank.run.step_bytes = 1e8;
      rank.run.peak_bytes_per_second = 1e10;
    }
  }
  const std::string text = AnswerText(*Analyze(std::move(runs), {}));
  EXPECT_THAT(text, ContainsRegex(table + "MFU +memory +tp "));
  // 64 examples in 57 ms, on 4 ranks.
  EXPECT_THAT(text, ContainsRegex("pipeline 1f1b .* 66 +8.[0-9] % +1[78].[0-9] "
                                  "% +0.00 +0.00 +12.80"));
  EXPECT_THAT(text, ContainsRegex("ddp .* 216 +4.[0-9] % +- +0.00 +0.00 "));
}

}  // namespace
}  // namespace rankwise
