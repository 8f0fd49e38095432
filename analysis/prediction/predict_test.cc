// Tests the binary through its command line.

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "analysis/prediction/runs_for_test.h"
#include "analysis/text/shell_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "records/record_json.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void WriteRun(const std::string& folder, const DdpRunForTest& config) {
  std::ofstream file(folder + "/" + config.run_id + ".jsonl");
  for (const RankTrace& rank : MakeDdpRun(config).ranks) {
    file << ToJsonLine(Record(rank.run)) << "\n";
    for (const StepRecord& step : rank.steps) {
      file << ToJsonLine(Record(step)) << "\n";
    }
    for (const TrafficRecord& traffic : rank.traffic) {
      file << ToJsonLine(Record(traffic)) << "\n";
    }
  }
}

// Writes records of ddp on 1, 2 and 4 ranks.
std::string Folder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  for (int64_t world_size : {1, 2, 4}) {
    DdpRunForTest config{.world_size = world_size};
    config.run_id = "x" + std::to_string(world_size);
    config.beta_seconds_per_byte = 1e-9;
    WriteRun(folder, config);
  }
  return folder;
}

// The flags of //analysis:predict.
struct PredictFlags {
  std::string records;
  std::string world_sizes = "8,64,1024";
  std::string link = "";
  int64_t fit_up_to = 0;
  std::string memory_limit = "";
  int64_t global_batch = 0;
  bool recommend = false;
  int64_t warmup_steps = 10;
  std::string more = "";
};

// Returns the binary's output; if it fails, an error with its output and a code
// for its exit code: InvalidArgument for 2, FailedPrecondition for 3.
absl::StatusOr<std::string> RunPredict(const PredictFlags& flags) {
  const std::string command = absl::StrCat(
      "analysis/prediction/predict '--records=", flags.records,
      "' --world_sizes=", flags.world_sizes, " --link=", flags.link,
      " --fit_up_to=", flags.fit_up_to, " --memory_limit=", flags.memory_limit,
      " --global_batch=", flags.global_batch,
      flags.recommend ? " --recommend" : "",
      " --warmup_steps=", flags.warmup_steps, " ", flags.more, " 2>&1");
  const auto [exit_code, text] = RunShell(command);
  if (exit_code == 0) return text;
  if (exit_code == 2) return absl::InvalidArgumentError(text);
  return exit_code == 3 ? absl::FailedPreconditionError(text)
                        : absl::UnknownError(text);
}

std::string Refusal(const PredictFlags& flags, absl::StatusCode code) {
  const auto text = RunPredict(flags);
  EXPECT_EQ(text.status().code(), code) << text.status();
  return std::string(text.status().message());
}

TEST(RunPredict, PrintsATable) {
  PredictFlags flags{.records = Folder("table")};
  flags.world_sizes = "1,8,64";
  flags.link = "0:1";  // 1 ns a byte
  const auto text = RunPredict(flags);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("ddp x8 *"), HasSubstr("ddp x64 *"),
                           HasSubstr("efficiency"), HasSubstr("Assumed:"),
                           HasSubstr("* beyond what was measured"),
                           HasSubstr("computing as measured on 4 ranks")));
  EXPECT_THAT(*text, HasSubstr("94.4 %"));  // 34 of 36 ms
}

TEST(RunPredict, RanksAreOnAsManyHostsAsAsked) {
  PredictFlags flags{.records = Folder("hosts")};
  flags.world_sizes = "2,8";
  flags.link = "0:1";
  flags.more = "--ranks_per_host=2 --inter_host_link=60:8";
  const auto text = RunPredict(flags);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text,
              AllOf(HasSubstr("\nddp x2 "), HasSubstr("\nddp x8 on 4 hosts *"),
                    HasSubstr("The link between hosts limits ddp x8 on 4 "
                              "hosts: ")));
  flags.more += " --all_reduce=hierarchical";
  EXPECT_THAT(*RunPredict(flags), HasSubstr("ddp x8 on 4 hosts, hierarchical"));
  flags.more = "--ranks_per_host=2";
  EXPECT_THAT(Refusal(flags, absl::StatusCode::kFailedPrecondition),
              HasSubstr("all_reduce across hosts over flat were not measured"));
  flags.more = "--inter_host_link=8";
  EXPECT_THAT(Refusal(flags, absl::StatusCode::kInvalidArgument),
              HasSubstr("--inter_host_link=8: expected ALPHA_US:BETA"));
  flags.more = "--all_reduce=tree";
  EXPECT_THAT(Refusal(flags, absl::StatusCode::kInvalidArgument),
              HasSubstr("--all_reduce=tree: expected flat or hierarchical"));
}

TEST(RunPredict, HoldsTheGlobalBatchWhereAsked) {
  PredictFlags flags{.records = Folder("global")};
  flags.world_sizes = "2,3";
  flags.link = "0:0";
  flags.global_batch = 128;
  const auto text = RunPredict(flags);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text,
              HasSubstr("ddp x3: a global batch of 128 does not divide by 3"));
  EXPECT_THAT(*text, HasSubstr("ddp x2"));
  EXPECT_THAT(*text,
              HasSubstr("No efficiency relative to one rank with batch 128: "
                        "ddp was recorded with batch 64"));
  EXPECT_THAT(*text, Not(HasSubstr("efficiency  ")));
}

TEST(RunPredict, EfficiencyUnderAGlobalBatchIsOfStrongScaling) {
  PredictFlags flags{.records = Folder("strong")};
  // One rank takes 34 ms for 64 examples, and 51 ms for 128.
  DdpRunForTest larger{.batch = 128};
  larger.trace = {0.015, 0.030, 0.006, {{4e6, 0.015}, {2e6, 0.030}}};
  larger.run_id = "larger";
  WriteRun(flags.records, larger);
  flags.world_sizes = "2";
  flags.link = "0:0";
  flags.global_batch = 128;
  const auto text = RunPredict(flags);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("75.0 %")) << *text;  // 51 / (2 * 34)
}

TEST(RunPredict, ScoresItself) {
  PredictFlags flags{.records = Folder("score")};
  flags.link = "0:1";
  flags.fit_up_to = 2;
  const auto text = RunPredict(flags);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(
      *text, AllOf(HasSubstr("held out"), HasSubstr("ddp x4"),
                   HasSubstr("Fitted up to 2 ranks: median error 0.0 % of 1"),
                   HasSubstr("Coverage is not known: every point was fitted to "
                             "fewer than 3 runs; intervals are")));
}

TEST(RunPredict, SaysHowOftenIntervalsHeldAndHowWideTheyWere) {
  PredictFlags flags{.records = Folder("coverage")};
  for (int64_t world_size : {2, 4}) {
    for (int repetition : {2, 3}) {
      DdpRunForTest config{.world_size = world_size};
      config.run_id = absl::StrCat("x", world_size, "-", repetition);
      config.beta_seconds_per_byte = 1e-9;
      WriteRun(flags.records, config);
    }
  }
  flags.link = "0:1";
  flags.fit_up_to = 2;
  const auto text = RunPredict(flags);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("100.0 % of 1 point lies within their interval; "
                               "intervals are 0.0 % of the step "
                               "wide at the median."))
      << *text;
}

TEST(RunPredict, TakesAFileOfRecords) {
  PredictFlags flags{.records = Folder("file") + "/x2.jsonl"};
  flags.world_sizes = "8";
  flags.link = "0:1";
  const auto text = RunPredict(flags);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("computing as measured on 2 ranks"));
  flags.link = "";
  EXPECT_THAT(Refusal(flags, absl::StatusCode::kFailedPrecondition),
              HasSubstr("/file/comm_bench-x2.jsonl"));
}

TEST(RunPredict, Recommends) {
  PredictFlags flags{.records = Folder("recommend")};
  flags.world_sizes = "8";
  flags.link = "0:1";
  flags.recommend = true;
  const auto text = RunPredict(flags);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("8 ranks, global batch 512"),
                           HasSubstr("is the fastest")));
  flags.memory_limit = "1GB";
  EXPECT_THAT(*RunPredict(flags), HasSubstr("was not recorded"));
}

TEST(RunPredict, WithoutCostsSaysHowToMeasureThem) {
  const PredictFlags flags{.records = Folder("nocosts")};
  EXPECT_THAT(Refusal(flags, absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("//comm_bench -- --nproc=2"), HasSubstr("--link"),
                    HasSubstr("nocosts")));
}

TEST(RunPredict, RefusesBadFlagsByName) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(Refusal({}, bad), HasSubstr("--records"));
  PredictFlags flags{.records = Folder("bad")};
  flags.link = "0:1";
  PredictFlags changed = flags;
  changed.world_sizes = "8,zero";
  EXPECT_THAT(Refusal(changed, bad), HasSubstr("--world_sizes=8,zero"));
  changed.world_sizes = "0";
  EXPECT_THAT(Refusal(changed, bad), HasSubstr("--world_sizes=0"));
  changed = flags;
  changed.link = "-1:1";
  EXPECT_THAT(Refusal(changed, bad), HasSubstr("--link=-1:1"));
  changed.link = "nowhere.json";
  EXPECT_THAT(Refusal(changed, bad), HasSubstr("--link=nowhere.json"));
  changed.link = "/dev";
  EXPECT_THAT(Refusal(changed, bad),
              HasSubstr("--link=/dev: is a folder, not a file"));
  changed = flags;
  changed.memory_limit = "much";
  EXPECT_THAT(Refusal(changed, bad), HasSubstr("--memory_limit=much"));
  changed = flags;
  changed.global_batch = -1;
  EXPECT_THAT(Refusal(changed, bad), HasSubstr("--global_batch=-1"));
  changed = flags;
  changed.warmup_steps = -1;
  EXPECT_THAT(Refusal(changed, bad), HasSubstr("--warmup_steps=-1"));
  changed = flags;
  changed.fit_up_to = -1;
  EXPECT_THAT(Refusal(changed, bad), HasSubstr("--fit_up_to=-1"));
  changed.fit_up_to = 2;
  changed.recommend = true;
  EXPECT_THAT(Refusal(changed, bad), HasSubstr("--recommend"));
}

TEST(RunPredict, RefusesFoldersWithoutRecords) {
  const std::string empty = testing::TempDir() + "/empty";
  std::filesystem::create_directory(empty);
  EXPECT_THAT(Refusal({.records = empty, .link = "0:1"},
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("holds no *.jsonl"));
  EXPECT_THAT(Refusal({.records = empty + "/none", .link = "0:1"},
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("--records"));
}

TEST(RunPredict, RefusesBrokenRecords) {
  const std::string folder = Folder("broken");
  std::ofstream(folder + "/broken.jsonl") << "no record\n{}\n";
  EXPECT_THAT(Refusal({.records = folder, .link = "0:1"},
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("broken.jsonl"));
  std::ofstream(folder + "/nothing.jsonl").flush();
  EXPECT_THAT(Refusal({.records = folder + "/nothing.jsonl", .link = "0:1"},
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("nothing.jsonl"));
}

}  // namespace
}  // namespace rankwise
