// Files that people write: schedules, and the flags of a study.

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_plan.h"
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

// A schedule that is accepted ends, with and without messages.
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
  // The ranks of a deadlock are told a line each.
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

// Of the runs that a study plans.
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
  // The message holds the flag's value and Abseil's own words, as they are.
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

// It is only noted how long runs took: what is not a line of it is passed over.
Verdict CheckDurations(const Parts& parts, const std::string& dir) {
  WriteFile(dir + "/durations.csv", parts[0]);
  for (const auto& [run, seconds] : ReadDurations(dir)) {
    if (!std::isfinite(seconds) || seconds < 0)
      return {absl::OkStatus(), absl::StrCat("a run took ", seconds, " s")};
  }
  return {};
}

}  // namespace

std::vector<Parser> TextParsers() {
  return {{"schedule", ScheduleSeeds, CheckSchedule,
           R"(schedule\.csv(, row \d+, column \d+: |: ))"},
          {"study", StudySeeds, CheckStudy, R"(study\.flags(:\d+)?: |--\w+)"},
          {"durations", DurationSeeds, CheckDurations, ""}};
}

}  // namespace rankwise::fuzz
