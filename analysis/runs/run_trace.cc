#include "analysis/runs/run_trace.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <map>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "records/record_reader.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Adds a record to its rank's. Records of other kinds are not kept.
struct Keeper {
  RankTrace& trace;
  void operator()(const StepRecord& r) { trace.steps.push_back(r); }
  void operator()(const ScheduleRecord& r) { trace.schedules.push_back(r); }
  void operator()(const EvalRecord& r) { trace.evals.push_back(r); }
  void operator()(const CollectiveRecord& r) { trace.collectives.push_back(r); }
  void operator()(const TrafficRecord& r) { trace.traffic.push_back(r); }
  void operator()(const TimelineRecord& r) { trace.timelines.push_back(r); }
  void operator()(const MemoryRecord& r) { trace.memory = r; }
  void operator()(const EnvironmentRecord& r) { trace.environment = r; }
  template <typename Other>
  void operator()(const Other&) {}
};

// Sorts the records of one file into runs.
class RunCollector {
 public:
  explicit RunCollector(std::string source) : source_(std::move(source)) {}

  absl::Status Add(const Record& record) {
    if (const auto* run = std::get_if<RunRecord>(&record)) return Open(*run);
    const int64_t rank =
        std::visit([](const auto& r) { return r.rank; }, record);
    const auto [run, trace] = current_.at(rank);
    std::visit(Keeper{runs_[run].ranks[trace]}, record);
    return absl::OkStatus();
  }

  std::vector<RunTrace> Take() {
    for (RunTrace& run : runs_) {
      std::sort(run.ranks.begin(), run.ranks.end(),
                [](const RankTrace& a, const RankTrace& b) {
                  return a.run.rank < b.run.rank;
                });
    }
    return std::move(runs_);
  }

 private:
  absl::Status Open(const RunRecord& record) {
    const auto [entry, is_new] =
        run_by_id_.try_emplace(record.run_id, runs_.size());
    if (is_new) runs_.push_back({source_, {}});
    std::vector<RankTrace>& ranks = runs_[entry->second].ranks;
    for (const RankTrace& trace : ranks) {
      if (trace.run.rank == record.rank) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", record.rank, " opens the run ", record.run_id,
                         " a second time"));
      }
      if (trace.run.world_size != record.world_size) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", record.rank, " of the run ", record.run_id,
                         " has world size ", record.world_size, ", and rank ",
                         trace.run.rank, " has ", trace.run.world_size));
      }
    }
    current_[record.rank] = {entry->second, ranks.size()};
    ranks.push_back({.run = record});
    return absl::OkStatus();
  }

  const std::string source_;
  std::vector<RunTrace> runs_;
  std::map<std::string, size_t> run_by_id_;
  // rank -> indices of the run and trace its records now belong to.
  std::map<int64_t, std::pair<size_t, size_t>> current_;
};

std::vector<int64_t> StepNumbers(const RankTrace& trace) {
  std::vector<int64_t> numbers;
  for (const StepRecord& step : trace.steps) numbers.push_back(step.step);
  return numbers;
}

// The trainers whose ranks share their examples.
bool IsPipeline(const RunRecord& run) {
  return run.binary == "model_parallel" || run.binary == "pipeline";
}

// Empty, or why the examples of the ranks cannot be counted.
std::string WrongReplicas(const RunTrace& run) {
  const int64_t world_size = run.ranks[0].run.world_size;
  const std::vector<ScheduleRecord>& first = run.ranks[0].schedules;
  if (first.empty() && IsPipeline(run.ranks[0].run)) {
    return "rank 0 has no schedule records, which say how many ranks share "
           "their examples";
  }
  for (const RankTrace& trace : run.ranks) {
    if (trace.schedules.empty() != first.empty()) {
      return absl::StrCat("of rank 0 and rank ", trace.run.rank,
                          ", only one has schedule records");
    }
    for (const ScheduleRecord& schedule : trace.schedules) {
      if (schedule.replicas == first[0].replicas) continue;
      return absl::StrCat("rank ", trace.run.rank, " recorded ",
                          schedule.replicas,
                          " replicas of the pipeline, and "
                          "rank 0 ",
                          first[0].replicas);
    }
  }
  if (first.empty() || world_size % first[0].replicas == 0) return "";
  return absl::StrCat(first[0].replicas,
                      " replicas of the pipeline do not divide ", world_size,
                      " ranks");
}

}  // namespace

absl::StatusOr<std::vector<RunTrace>> LoadRuns(const std::string& path) {
  RunCollector collector(path);
  ASSIGN_OR_RETURN(const ReadSummary summary,
                   VisitRecords(path, {.tolerate_torn_lines = true},
                                [&](const Record& record) {
                                  return collector.Add(record);
                                }));
  std::vector<RunTrace> runs = collector.Take();
  runs[0].torn_lines = summary.torn_lines;
  return runs;
}

absl::StatusOr<std::vector<std::string>> RecordFilesIn(
    const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file or folder"));
  }
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".jsonl") {
      files.push_back(entry.path().string());
    }
  }
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot be listed: ", error.message()));
  }
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat(
        path,
        ": holds no *.jsonl; is it a folder that a study or --record "
        "wrote to?"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::vector<RunTrace>> LoadRunsFrom(
    absl::Span<const std::string> files) {
  std::vector<absl::StatusOr<std::vector<RunTrace>>> loaded(files.size());
  std::atomic<size_t> next = 0;
  const auto load = [&files, &loaded, &next] {
    for (size_t i = next++; i < files.size(); i = next++) {
      loaded[i] = LoadRuns(files[i]);
    }
  };
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min(cores, files.size()); ++i) {
    helpers.emplace_back(load);
  }
  load();
  for (std::thread& helper : helpers) helper.join();
  std::vector<RunTrace> runs;
  for (absl::StatusOr<std::vector<RunTrace>>& of_file : loaded) {
    if (!of_file.ok()) return of_file.status();
    std::move(of_file->begin(), of_file->end(), std::back_inserter(runs));
  }
  return runs;
}

std::vector<std::string> TornLines(absl::Span<const RunTrace> runs) {
  std::vector<std::string> lines;
  for (const RunTrace& run : runs) {
    for (int64_t number : run.torn_lines) {
      lines.push_back(absl::StrCat(
          run.source, ":", number,
          ": a torn line, as a killed run or a full disk leaves it"));
    }
  }
  return lines;
}

absl::Status CheckRun(const RunTrace& run) {
  const auto fail = [&run](const std::string& reason) {
    return absl::FailedPreconditionError(
        absl::StrCat(run.source, ": ", reason));
  };
  if (run.ranks.empty()) return fail("the run has no ranks");
  const int64_t world_size = run.ranks[0].run.world_size;
  if (static_cast<int64_t>(run.ranks.size()) != world_size) {
    return fail(absl::StrCat("the run has the records of ", run.ranks.size(),
                             " of its ", world_size, " ranks"));
  }
  const std::vector<int64_t> steps = StepNumbers(run.ranks[0]);
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i] != steps[i - 1] + 1) {
      return fail(absl::StrCat("rank 0 recorded step ", steps[i],
                               " after step ", steps[i - 1]));
    }
  }
  for (const RankTrace& trace : run.ranks) {
    if (StepNumbers(trace) != steps) {
      return fail(absl::StrCat("rank ", trace.run.rank, " recorded ",
                               trace.steps.size(), " steps, and rank 0 ",
                               steps.size(),
                               " or others; did the run end early?"));
    }
  }
  const std::string wrong_replicas = WrongReplicas(run);
  return wrong_replicas.empty() ? absl::OkStatus() : fail(wrong_replicas);
}

int64_t RanksPerReplica(const RunTrace& run) {
  const RankTrace& first = run.ranks[0];
  if (first.schedules.empty()) return 1;
  return first.run.world_size / first.schedules[0].replicas;
}

}  // namespace rankwise
