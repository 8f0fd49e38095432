#include "analysis/runs/run_trace.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <map>
#include <thread>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "records/command_line.h"
#include "records/record_reader.h"
#include "records/usable_resources.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Appends a record to its rank's trace; ignores other kinds.
struct RecordAppender {
  RankTrace& trace;
  void operator()(const StepRecord& r) { trace.steps.push_back(r); }
  void operator()(const ScheduleRecord& r) { trace.schedules.push_back(r); }
  void operator()(const CollectiveRecord& r) { trace.collectives.push_back(r); }
  void operator()(const OverlapRecord& r) { trace.overlaps.push_back(r); }
  void operator()(const TrafficRecord& r) { trace.traffic.push_back(r); }
  void operator()(const TimelineRecord& r) { trace.timelines.push_back(r); }
  void operator()(const RestartRecord& r) { trace.restarts.push_back(r); }
  void operator()(const UpdateRecord& r) { trace.updates.push_back(r); }
  void operator()(const EvalRecord& r) { trace.evaluations.push_back(r); }
  void operator()(const LayerRecord& r) { trace.layers.push_back(r); }
  void operator()(const DivergenceRecord& r) { trace.divergences.push_back(r); }
  void operator()(const MemoryRecord& r) { trace.memory = r; }
  void operator()(const EnvironmentRecord& r) { trace.environment = r; }
  template <typename Other>
  void operator()(const Other&) {}
};

// Assigns the records of one file to runs.
class RunCollector {
 public:
  explicit RunCollector(std::string source) : source_(std::move(source)) {}

  absl::Status Add(const Record& record) {
    if (const auto* run = std::get_if<RunRecord>(&record)) return Open(*run);
    const int64_t rank =
        std::visit([](const auto& r) { return r.rank; }, record);
    const auto [run, trace] = current_.at(rank);
    std::visit(RecordAppender{runs_[run].ranks[trace]}, record);
    return absl::OkStatus();
  }

  // Returns the runs, each with its ranks in the order of their run records.
  std::vector<RunTrace> Take() { return std::move(runs_); }

 private:
  absl::Status Open(const RunRecord& record) {
    const auto [entry, is_new] =
        run_by_id_.try_emplace(record.run_id, runs_.size());
    if (is_new) runs_.push_back({source_, {}});
    std::vector<RankTrace>& ranks = runs_[entry->second].ranks;
    for (const RankTrace& trace : ranks) {
      if (trace.run.rank == record.rank) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", record.rank, " opens the run ",
                         Quoted(record.run_id), " a second time"));
      }
      if (trace.run.world_size != record.world_size) {
        return absl::InvalidArgumentError(absl::StrCat(
            "rank ", record.rank, " of the run ", Quoted(record.run_id),
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
  // rank -> indices of the run and trace of its further records
  std::map<int64_t, std::pair<size_t, size_t>> current_;
};

// Collects the runs of all files. A run's ranks may be in several files.
class RunJoiner {
 public:
  absl::Status Add(RunTrace run) {
    const std::string id = run.ranks[0].run.run_id;
    if (id.empty()) {
      runs_.push_back(std::move(run));
      return absl::OkStatus();
    }
    for (const RankTrace& trace : run.ranks) {
      const auto [file, is_new] =
          files_.try_emplace({id, trace.run.rank}, run.source);
      if (is_new) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(file->second, " and ", run.source, " hold the same run ",
                       Quoted(id), ": remove one of the two"));
    }
    const auto [place, is_new] = run_by_id_.try_emplace(id, runs_.size());
    if (!is_new) return Join(std::move(run), runs_[place->second]);
    runs_.push_back(std::move(run));
    return absl::OkStatus();
  }

  std::vector<RunTrace> Take() {
    for (RunTrace& run : runs_) {
      absl::c_sort(run.ranks, [](const RankTrace& a, const RankTrace& b) {
        return a.run.rank < b.run.rank;
      });
    }
    return std::move(runs_);
  }

 private:
  static absl::Status Join(RunTrace more, RunTrace& run) {
    const RunRecord& known = run.ranks[0].run;
    if (more.ranks[0].run.world_size != known.world_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          run.source, " and ", more.source,
          " disagree about the world size of the run ", Quoted(known.run_id)));
    }
    run.torn_lines.merge(more.torn_lines);
    std::move(more.ranks.begin(), more.ranks.end(),
              std::back_inserter(run.ranks));
    return absl::OkStatus();
  }

  std::vector<RunTrace> runs_;
  std::map<std::string, size_t> run_by_id_;
  // run and rank -> the file with its records
  std::map<std::pair<std::string, int64_t>, std::string> files_;
};

std::vector<int64_t> StepNumbers(const RankTrace& trace) {
  std::vector<int64_t> numbers;
  for (const StepRecord& step : trace.steps) numbers.push_back(step.step);
  return numbers;
}

// Whether the trainer's ranks share their examples.
bool IsPipeline(const RunRecord& run) {
  return run.binary == "model_parallel" || run.binary == "pipeline";
}

// Returns "", or why the examples of the ranks cannot be counted.
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

// Whether a rank used a virtual device of tests/virtual_gpu.
bool UsesVirtualGpus(const RunTrace& run) {
  return absl::c_any_of(run.ranks, [](const RankTrace& rank) {
    return absl::c_any_of(rank.run.devices, [](const std::string& device) {
      return absl::StrContains(device, "(virtual)");
    });
  });
}

absl::StatusOr<std::vector<RunTrace>> LoadFile(const std::string& path) {
  RunCollector collector(path);
  ASSIGN_OR_RETURN(const ReadSummary summary,
                   VisitRecords(path, {.tolerate_torn_lines = true},
                                [&](const Record& record) {
                                  return collector.Add(record);
                                }));
  std::vector<RunTrace> runs = collector.Take();
  if (absl::c_any_of(runs, UsesVirtualGpus)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": recorded on virtual GPUs, which measure nothing; record "
        "on real ones"));
  }
  runs[0].torn_lines[path] = summary.torn_lines;
  return runs;
}

}  // namespace

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

absl::StatusOr<std::vector<RunTrace>> LoadRuns(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, RecordFilesIn(path));
  std::vector<absl::StatusOr<std::vector<RunTrace>>> loaded(files.size());
  std::atomic<size_t> next = 0;
  const auto load = [&files, &loaded, &next] {
    for (size_t i = next++; i < files.size(); i = next++) {
      loaded[i] = LoadFile(files[i]);
    }
  };
  const size_t cores = static_cast<size_t>(UsableCores());
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min(cores, files.size()); ++i) {
    helpers.emplace_back(load);
  }
  load();
  for (std::thread& helper : helpers) helper.join();
  RunJoiner joiner;
  for (absl::StatusOr<std::vector<RunTrace>>& of_file : loaded) {
    RETURN_IF_ERROR(of_file.status());
    for (RunTrace& run : *of_file) {
      RETURN_IF_ERROR(joiner.Add(std::move(run)));
    }
  }
  return joiner.Take();
}

std::vector<std::string> TornLines(absl::Span<const RunTrace> runs) {
  std::vector<std::string> lines;
  for (const RunTrace& run : runs) {
    for (const auto& [file, numbers] : run.torn_lines) {
      for (int64_t number : numbers) {
        lines.push_back(absl::StrCat(
            file, ":", number,
            ": a torn line, as a killed run or a full disk leaves it"));
      }
    }
  }
  return lines;
}

absl::Status RunError(const RunTrace& run, absl::string_view reason) {
  return absl::FailedPreconditionError(absl::StrCat(run.source, ": ", reason));
}

absl::Status CheckRun(const RunTrace& run) {
  if (run.ranks.empty()) return RunError(run, "the run has no ranks");
  const int64_t world_size = run.ranks[0].run.world_size;
  if (static_cast<int64_t>(run.ranks.size()) != world_size) {
    return RunError(
        run, absl::StrCat("the run has the records of ", run.ranks.size(),
                          " of its ", world_size, " ranks"));
  }
  const std::string diverged = WhyDiverged(run);
  if (!diverged.empty()) return RunError(run, diverged);
  const std::vector<int64_t> steps = StepNumbers(run.ranks[0]);
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i] - 1 != steps[i - 1]) {
      return RunError(run, absl::StrCat("rank 0 recorded step ", steps[i],
                                        " after step ", steps[i - 1]));
    }
  }
  for (const RankTrace& trace : run.ranks) {
    if (StepNumbers(trace) != steps) {
      return RunError(run, absl::StrCat("rank ", trace.run.rank, " recorded ",
                                        trace.steps.size(),
                                        " steps, and rank 0 ", steps.size(),
                                        " or others; did the run end early?"));
    }
  }
  const std::string wrong_replicas = WrongReplicas(run);
  return wrong_replicas.empty() ? absl::OkStatus()
                                : RunError(run, wrong_replicas);
}

std::vector<int64_t> HostsOfRanks(const RunTrace& run) {
  std::map<std::string, int64_t> numbers;
  std::vector<int64_t> hosts;
  for (const RankTrace& rank : run.ranks) {
    const std::string name = rank.run.hosts > 0
                                 ? absl::StrCat(rank.run.host_index)
                                 : rank.run.host.hostname;
    const auto next = static_cast<int64_t>(numbers.size());
    hosts.push_back(numbers.try_emplace(name, next).first->second);
  }
  return hosts;
}

int64_t CountHosts(const RunTrace& run) {
  const std::vector<int64_t> hosts = HostsOfRanks(run);
  return hosts.empty() ? 1 : 1 + *std::max_element(hosts.begin(), hosts.end());
}

int64_t AxisSize(const RunRecord& run, absl::string_view axis) {
  for (const RecordedAxis& one : run.mesh) {
    if (one.name == axis) return one.size;
  }
  return 1;
}

int64_t RanksSharingExamples(const RunTrace& run) {
  const RankTrace& first = run.ranks[0];
  if (!first.run.mesh.empty()) {
    return first.run.world_size / AxisSize(first.run, "dp");
  }
  if (first.schedules.empty()) return 1;
  return first.run.world_size / first.schedules[0].replicas;
}

bool Serves(const RankTrace& rank) { return !rank.updates.empty(); }

int64_t ReplicasOf(const RunRecord& run) {
  if (run.binary != "data_parallel") return 1;
  return std::max<int64_t>(1, std::ssize(run.devices));
}

std::string FlagOf(const RunRecord& run, const std::string& name) {
  const auto flag = run.flags.find(name);
  return flag == run.flags.end() ? "" : flag->second;
}

double NumberFlagOf(const RunRecord& run, const std::string& name,
                    double otherwise) {
  double value = 0;
  return absl::SimpleAtod(FlagOf(run, name), &value) ? value : otherwise;
}

bool SkipsCommunication(const RunRecord& run) {
  return FlagOf(run, "skip_communication") == "true";
}

std::vector<CollectiveRow> CollectiveRows(const RunTrace& run) {
  std::vector<const CollectiveRecord*> records;
  for (const RankTrace& rank : run.ranks) {
    for (const CollectiveRecord& record : rank.collectives)
      records.push_back(&record);
  }
  return CollectiveRows(records);
}

}  // namespace rankwise
