// Parsers of files written by users: schedules, the flags of a study, clusters,
// and traffic matrices.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/plan/output.h"
#include "analysis/plan/step.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_plan.h"
#include "comm_bench/collectives/traffic_matrix.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "tests/fuzz/parser.h"

namespace rankwise::fuzz {
namespace {

std::vector<Parts> ScheduleSeeds(const std::string&) {
  std::vector<Parts> seeds;
  for (const char* name : {"1f1b", "interleaved_1f1b", "zbv", "dualpipev"})
    seeds.push_back({ToCsv(*MakeSchedule(name, {2, 4}))});
  const Schedule messages =
      *AddCommunication(*MakeSchedule("zero_bubble_h1", {3, 4}));
  std::string text;
  for (const auto& actions : messages.actions) {
    for (const Action& action : actions)
      absl::StrAppend(&text, ToString(action), ",");
    absl::StrAppend(&text, "\n");
  }
  seeds.push_back({text});
  return seeds;
}

bool IsShare(double value) { return value >= -1e-9 && value <= 1; }

// An accepted schedule must terminate, with and without messages.
std::string ScheduleFault(const Schedule& schedule) {
  const auto timeline = Simulate(schedule, {.stages = {StageCosts()}});
  if (!timeline.ok())
    return absl::StrCat("is not simulated: ", timeline.status().message());
  const Bubbles bubbles = MeasureBubbles(*timeline);
  if (!IsShare(bubbles.span) || !IsShare(bubbles.wall))
    return absl::StrCat("has bubbles of ", bubbles.span, ", ", bubbles.wall);
  const auto messages = AddCommunication(schedule);
  if (!messages.ok() || !Validate(*messages).ok())
    return "cannot be given messages";
  const auto again = ParseScheduleCsv(schedule.name, ToCsv(schedule));
  const bool same = again.ok() && again->actions == schedule.actions &&
                    again->rank_of_stage == schedule.rank_of_stage;
  return same ? "" : "is written as another";
}

Verdict CheckSchedule(const Parts& parts, const std::string& dir) {
  const std::string path = dir + "/schedule.csv";
  WriteFile(path, parts[0]);
  const auto schedule = OpenSchedule(path, {0, 0});
  if (schedule.ok()) return {absl::OkStatus(), ScheduleFault(*schedule)};
  // A deadlock is reported with a line per rank.
  std::string message(schedule.status().message());
  std::replace(message.begin(), message.end(), '\n', ' ');
  return {absl::InvalidArgumentError(
      message.substr(0, message.find(" in a cycle:")))};
}

std::vector<Parts> StudySeeds(const std::string&) {
  StudyDescription described = DescribeStudy(StudyConfig());
  std::vector<Parts> seeds = {{*FlagfileText(described)}};
  described.flags["world_sizes"] = "1,2,4";
  described.flags["model"] = "gpt";
  described.flags["scaling"] = "strong,weak,fixed_memory";
  described.flags["memory_limit"] = "4GB";
  described.flags["oversubscribe"] = "true";
  StudyDescription by_layouts = described;
  by_layouts.flags["layouts"] = "zero3,tp2,dp2xtp2,pp2xtp2";
  seeds.push_back({*FlagfileText(by_layouts)});
  described.flags["trainers"] = "single,ddp,fsdp,hybrid";
  described.flags["zero_stages"] = "1,3";
  seeds.push_back({*FlagfileText(described)});
  return seeds;
}

// Checks the runs of a study's plan.
std::string PlanFault(const StudyPlan& plan) {
  for (const PlannedRun& run : plan.runs) {
    if (run.world_size < 1 || run.batch_size < 0 || run.micro_batches < 1 ||
        (run.IsTraining() && run.GlobalBatch() < 1))
      return absl::StrCat("plans ", run.Name());
  }
  return "";
}

Verdict CheckStudy(const Parts& parts, const std::string& dir) {
  const std::string path = dir + "/study.flags";
  WriteFile(path, parts[0]);
  const auto described = ReadFlagfile(path);
  if (!described.ok()) return {described.status()};
  WriteFile(path, *FlagfileText(*described));
  const auto again = ReadFlagfile(path);
  if (!again.ok() || again->flags != described->flags ||
      again->origin != described->origin)
    return {absl::OkStatus(), "is written as another"};
  static const auto defaults = DescribeStudy(StudyConfig());
  if (!SetFlags(defaults).ok()) return {absl::OkStatus(), "has no defaults"};
  // The message contains the flag's value and Abseil's text unchanged.
  if (!SetFlags(*described).ok())
    return {absl::InvalidArgumentError("study.flags: --flag")};
  const auto config = ConfigFromFlags();
  if (!config.ok()) return {config.status()};
  return {absl::OkStatus(), PlanFault(PlanStudy(*config))};
}

std::vector<Parts> DurationSeeds(const std::string& dir) {
  AddDuration(dir, "ddp-x2-batch32-rep1", absl::Seconds(12.5));
  AddDuration(dir, "single-x1-batch64-rep1", absl::Milliseconds(3));
  return {{ReadFile(dir + "/durations.csv")}};
}

// Durations are only hints: malformed lines are skipped.
Verdict CheckDurations(const Parts& parts, const std::string& dir) {
  WriteFile(dir + "/durations.csv", parts[0]);
  for (const auto& [run, seconds] : ReadDurations(dir)) {
    if (!std::isfinite(seconds) || seconds < 0)
      return {absl::OkStatus(), absl::StrCat("a run took ", seconds, " s")};
  }
  return {};
}

std::vector<Parts> ClusterSeeds(const std::string&) {
  return {
      {R"({"format": "rankwise cluster", "version": 1, "name": "four",
 "devices_per_node": 4,
 "device": {"peak_tflops": 312, "memory_gb": 80, "memory_gb_per_second": 1750,
            "efficiency": {"most": 0.78, "scale_gflop": 120}},
 "intra_node": {"latency_us": 2, "gb_per_second": 235},
 "inter_node": {"latency_us": 5, "gb_per_second_of_node": 176},
 "relative_error": 0.08})"},
      {R"({"format": "rankwise cluster", "version": 1, "devices_per_node": 1,
 "device": {"peak_tflops": 1e3, "memory_gb": 0.5,
            "efficiency": {"most": 1}},
 "intra_node": {"latency_us": 0.5, "gb_per_second": 1},
 "inter_node": {"latency_us": 100, "gb_per_second_of_node": 0.1}})"}};
}

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }

// Returns "" if a step of every kind of layout has a finite, positive duration.
std::string StepFault(const plan::Setting& setting) {
  const Layout layouts[] = {
      {},        {.dp = 8}, {.dp = 2, .zero = 3},
      {.cp = 4}, {.tp = 4}, {.pp = 2, .dp = 2, .tp = 2, .micro_batches = 4}};
  auto steps = plan::StepModel::Create(setting);
  if (!steps.ok())
    return absl::StrCat("is no network: ", steps.status().message());
  for (const Layout& layout : layouts) {
    const auto step = steps->PredictInDetail(layout);
    if (step.ok() && IsPositive(step->step_seconds) &&
        IsPositive(step->step_interval.high) &&
        step->step_interval.low <= step->step_interval.high)
      continue;
    return absl::StrCat("no time for ", layout.MeshName());
  }
  return "";
}

Verdict CheckCluster(const Parts& parts, const std::string&) {
  auto cluster = plan::ClusterFromJson(parts[0]);
  if (!cluster.ok()) return {cluster.status()};
  const plan::Device& device = cluster->device;
  // Infinite if the file does not state it.
  const bool moves = device.memory_bytes_per_second > 0;
  if (!IsPositive(device.peak_flops) || !IsPositive(device.memory_bytes) ||
      !IsPositive(device.efficiency.most) ||
      !std::isfinite(device.efficiency.scale) || !moves ||
      !IsPositive(cluster->deviation) || cluster->devices_per_node < 1)
    return {absl::OkStatus(), "has numbers that are not finite and positive"};
  const plan::Setting setting = {*plan::NamedModel("nano"),
                                 *plan::OwnEngine("fp32"), *std::move(cluster)};
  if (!IsPrintable(SettingText(setting)))
    return {absl::OkStatus(), "control characters in the text"};
  return {absl::OkStatus(), StepFault(setting)};
}

constexpr int kTrafficRanks = 3;

std::vector<Parts> TrafficSeeds(const std::string&) {
  return {{"# from rank 0\n1, 2, 4\n\n 4\t2 1 # from rank 1\r\n1,1,5\n"},
          {"0.1 0.2 0.7\n0.7 0.1 0.2\n1 0 0\n"}};
}

// Returns "" if each rank's sent elements sum to `count` and match those
// received.
std::string CountsFault(const comm_bench::TrafficMatrix& matrix,
                        int64_t count) {
  std::vector<int64_t> received(kTrafficRanks);
  for (int from = 0; from < kTrafficRanks; ++from) {
    const auto sent = matrix.SendCounts(from, count);
    if (sent.size() != kTrafficRanks ||
        *std::min_element(sent.begin(), sent.end()) < 0 ||
        std::accumulate(sent.begin(), sent.end(), int64_t{0}) != count)
      return absl::StrCat("rank ", from, " does not send ", count);
    for (int to = 0; to < kTrafficRanks; ++to) received[to] += sent[to];
  }
  for (int to = 0; to < kTrafficRanks; ++to) {
    const auto parts = matrix.ReceiveCounts(to, count);
    if (std::accumulate(parts.begin(), parts.end(), int64_t{0}) != received[to])
      return absl::StrCat("rank ", to, " does not receive what is sent to it");
  }
  return "";
}

Verdict CheckTraffic(const Parts& parts, const std::string& dir) {
  const std::string path = dir + "/traffic.txt";
  WriteFile(path, parts[0]);
  const auto matrix = comm_bench::TrafficMatrix::Read(path, kTrafficRanks);
  if (!matrix.ok()) return {matrix.status()};
  for (const int64_t count : {0, 1, 1000, 1 << 30}) {
    const std::string fault = CountsFault(*matrix, count);
    if (!fault.empty()) return {absl::OkStatus(), fault};
  }
  return {};
}

}  // namespace

std::vector<Parser> TextParsers() {
  return {{"schedule", ScheduleSeeds, CheckSchedule,
           R"(schedule\.csv(, row \d+, column \d+: |: ))"},
          {"study", StudySeeds, CheckStudy, R"(study\.flags(:\d+)?: |--\w+)"},
          {"durations", DurationSeeds, CheckDurations, ""},
          {"cluster", ClusterSeeds, CheckCluster,
           R"(\((/[^ ]*)+\)|^key '\w+' not|^not a cluster's file)"},
          {"traffic", TrafficSeeds, CheckTraffic, R"(traffic\.txt:\d+: )"}};
}

}  // namespace rankwise::fuzz
