// Parsers of records, the answer computed from them, and networks fitted to
// them.

#include <cmath>
#include <filesystem>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/answer/answer.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/prediction/recordings.h"
#include "analysis/runs/made_study_for_test.h"
#include "analysis/runs/run_trace.h"
#include "records/record_json.h"
#include "records/record_reader.h"
#include "records/record_writer.h"
#include "tests/fuzz/parser.h"

namespace rankwise::fuzz {
namespace {

RunRecord Run() {
  RunRecord run;
  run.run_id = "20260131-235959-9f3a02c1";
  run.binary = "hybrid";
  run.flags = {{"batch_size", "64"}, {"model", "gpt"}};
  run.config_hash = "0123456789abcdef";
  run.scaling_hash = "fedcba9876543210";
  run.world_size = 1;
  run.backend = "gloo";
  run.host = {"node-3", "A CPU", 8, int64_t{1} << 35};
  run.devices = {"cpu"};
  run.source_hash = "00112233445566aa";
  run.mesh = {{"dp", 1}, {"tp", 1}};
  return run;
}

StepRecord Step(int64_t step) {
  StepRecord record;
  record.step = step;
  record.epoch = 1;
  record.loss = 2.3;
  record.step_seconds = 0.07;
  record.forward_seconds = 0.02;
  record.backward_seconds = 0.04;
  record.exposed_comm_seconds = 0.01;
  record.examples = 64;
  record.exposed_by_axis_seconds = {{"tp", 0.0075}, {"dp", 0.0025}};
  record.units = {{"block_0", 0.25, 0.5, 1}};
  record.first_device_seconds = {{"scatter", 0.25}};
  return record;
}

CollectiveRecord Collective() {
  CollectiveRecord record;
  record.collective = "all_reduce";
  record.bytes = 4096;
  record.count = 1024;
  record.dtype = "float32";
  record.op = "sum";
  record.ranks = {0};
  record.group_size = 1;
  record.seconds = {1e-4, 2e-4, 1.5e-4};
  record.start_seconds = {0, 1e-3, 2e-3};
  record.late = {1};
  return record;
}

TrafficRecord Traffic() {
  TrafficRecord record;
  record.step = 1;
  record.step_seconds = 0.07;
  record.events = {
      {"all_reduce", 4096, 1024, "float32", -1, {0}, 0.01, 0.02, 0.015, "tp"}};
  return record;
}

std::vector<Record> OneOfEveryKind() {
  TimelineRecord timeline;
  timeline.schedule = "1f1b";
  timeline.spans = {{"F", 0, 0, 0.5, 0.75}};
  OverlapRecord overlap;
  overlap.compute_seconds = overlap.comm_seconds = overlap.both_seconds =
      overlap.both_compute_seconds = overlap.both_comm_seconds = {0.5};
  ScheduleRecord schedule;
  schedule.step = 1;
  schedule.schedule = "1f1b";
  schedule.schedule_seconds = 0.5;
  schedule.planned_for_seconds = {{"F", 0.5}};
  return {Run(),
          Step(1),
          Step(2),
          EpochRecord{0, 1, 1.5, 50000, 31.25},
          EvalRecord{0, 1, 1.25, 5012, 10000, 2.5},
          CheckpointRecord{0, 782, 1, "ckpt", 25700000, 0.125, 0.0625},
          RestartRecord{0, 1, "rank 1 ended", 781, 1.75e9, 1.75e9, 1.75e9},
          DivergenceRecord{0, 7, "the loss of step 7 is nan on rank 0"},
          UpdateRecord{0, 7, 2, 7, 5, 19, 13, 1.25},
          schedule,
          Collective(),
          overlap,
          Traffic(),
          EnvironmentRecord{0, "1 package", {0, 1}, {{"OMP_NUM_THREADS", "1"}}},
          MemoryRecord{0, 1 << 30, 0, {1, 2, 3, 0, 4}, {1, 2, 3, 1, 4}},
          LayerRecord{0, 1, "fc1", 64, 1e9, 2e9, 1e6, 2e6, {0.5}, {0.5}},
          timeline};
}

std::string LinesOf(const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records)
    absl::StrAppend(&text, ToJsonLine(record), "\n");
  return text;
}

std::vector<Parts> RecordSeeds(const std::string& dir) {
  const std::string path = dir + "/records.jsonl";
  const auto writer = RecordWriter::Open(path);
  for (const Record& record : OneOfEveryKind())
    if (!(*writer)->Write(record).ok()) return {};
  return {{ReadFile(path)}};
}

// Accepted input must be unchanged after writing and reading it.
Verdict CheckRecords(const Parts& parts, const std::string& dir) {
  const std::string path = dir + "/records.jsonl";
  WriteFile(path, parts[0]);
  const auto records = ReadRecords(path);
  const auto tolerant = ReadRecords(path, {.tolerate_torn_lines = true});
  if (!records.ok()) return {records.status()};
  const std::string lines = LinesOf(*records);
  if (!tolerant.ok() || LinesOf(*tolerant) != lines)
    return {absl::OkStatus(), "whole lines are read otherwise among torn ones"};
  WriteFile(path, lines);
  const auto again = ReadRecords(path);
  if (!again.ok())
    return {absl::OkStatus(), absl::StrCat("what was read is refused when it "
                                           "is written: ",
                                           again.status().message())};
  return {absl::OkStatus(), LinesOf(*again) == lines
                                ? ""
                                : "what was read is written as another"};
}

// Returns a small study's records, all in one file.
std::vector<Parts> StudySeeds(const std::string& dir) {
  const std::string folder = dir + "/study";
  std::filesystem::create_directories(folder);
  if (!WriteMadeStudy(folder, {.records = 600}).ok()) return {};
  Parts parts = {""};
  const std::vector<std::string> files = RecordFilesIn(folder).value();
  for (const std::string& path : files) parts[0] += ReadFile(path);
  std::filesystem::remove_all(folder);
  BenchRunForTest bench;
  std::string benched;
  for (const RankTrace& rank : MakeBenchRun(bench).ranks) {
    absl::StrAppend(&benched, ToJsonLine(rank.run), "\n");
    for (const CollectiveRecord& row : rank.collectives)
      absl::StrAppend(&benched, ToJsonLine(row), "\n");
  }
  return {parts, {parts[0] + benched}, {benched}};
}

// The study's answer must be text that is safe to print.
Verdict CheckAnswer(const Parts& parts, const std::string& dir) {
  const std::string path = dir + "/study.jsonl";
  WriteFile(path, parts[0]);
  auto runs = LoadRuns(path);
  if (!runs.ok()) return {runs.status()};
  for (RunTrace& run : *runs) run = MirrorFakeRanks(std::move(run));
  AnswerConfig config;
  config.throughput.warmup_steps = 1;
  config.bootstrap.resamples = 20;
  const auto answer = Analyze(*std::move(runs), config);
  return {absl::OkStatus(), IsPrintable(AnswerText(*answer))
                                ? ""
                                : "control characters in the answer"};
}

std::vector<Parts> NetworkSeeds(const std::string&) {
  BenchRunForTest run;
  run.collectives = {"all_reduce", "ping_pong"};
  NetworkModel fitted = *FitNetwork({MakeBenchRun(run)});
  fitted.across_hosts = LinkAcrossHosts(5e-5, 8e-9);
  return {{NetworkToJson(fitted)}, {NetworkToJson(FlatNetwork(1e-5, 1e-10))}};
}

bool IsEstimate(const CostEstimate& estimate) {
  return std::isfinite(estimate.seconds) && estimate.seconds >= 0 &&
         estimate.interval.low <= estimate.seconds &&
         estimate.seconds <= estimate.interval.high;
}

// Returns "" if every call has a duration, even for sizes and worlds far beyond
// those in the file.
std::string EstimateFault(const NetworkModel& network) {
  for (const CollectiveCosts& costs : network.collectives) {
    for (const double bytes : {0.0, 1.0, 1e5, 1e12}) {
      for (const int64_t ranks : {2, 3, 8, 10000}) {
        const auto estimate = network.Estimate(costs.collective, bytes, ranks);
        if (estimate.ok() && IsEstimate(*estimate)) continue;
        return absl::StrCat("no time for ", bytes, " bytes among ", ranks,
                            " ranks");
      }
    }
  }
  return "";
}

Verdict CheckNetwork(const Parts& parts, const std::string&) {
  const auto network = NetworkFromJson(parts[0]);
  if (!network.ok()) return {network.status()};
  const std::string text = NetworkToJson(*network);
  const auto again = NetworkFromJson(text);
  if (!again.ok() || NetworkToJson(*again) != text)
    return {absl::OkStatus(), "what was read is written as another"};
  if (!IsPrintable(NetworkText(*network)))
    return {absl::OkStatus(), "control characters in the table"};
  return {absl::OkStatus(), EstimateFault(*network)};
}

}  // namespace

std::vector<Parser> RecordParsers() {
  return {
      {"records", RecordSeeds, CheckRecords, R"(records\.jsonl(:\d+)?: )"},
      {"answer", StudySeeds, CheckAnswer, R"(study\.jsonl(:\d+)?: )"},
      {"network", NetworkSeeds, CheckNetwork,
       R"(at byte \d+|\((/[^ ]*)+\)|^version: |^key '\w+' not|^not a network file)"}};
}

}  // namespace rankwise::fuzz
