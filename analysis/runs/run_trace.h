// Runs as analysis sees them: the records of all ranks of one run together.
#ifndef RANKWISE_ANALYSIS_RUNS_RUN_TRACE_H_
#define RANKWISE_ANALYSIS_RUNS_RUN_TRACE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "records/collective_rows.h"
#include "records/record.h"

namespace rankwise {

struct RankTrace {
  RunRecord run;
  std::vector<StepRecord> steps = {};  // in the order they were taken
  // In the order they were written.
  std::vector<ScheduleRecord> schedules = {};
  std::vector<CollectiveRecord> collectives = {};
  std::vector<OverlapRecord> overlaps = {};
  std::vector<TrafficRecord> traffic = {};
  std::vector<TimelineRecord> timelines = {};
  std::vector<RestartRecord> restarts = {};
  std::vector<UpdateRecord> updates = {};
  std::vector<EvalRecord> evaluations = {};
  std::vector<LayerRecord> layers = {};  // by layer
  std::vector<DivergenceRecord> divergences = {};
  std::optional<MemoryRecord> memory = {};
  std::optional<EnvironmentRecord> environment = {};
};

struct RunTrace {
  std::string source;            // the file, for messages; the first of several
  std::vector<RankTrace> ranks;  // by rank; complete only if CheckRun says so
  // Lines that were skipped, by file; of a file with several runs, in its
  // first.
  std::map<std::string, std::vector<int64_t>> torn_lines = {};
};

// Reads every run of RecordFilesIn(path), several files at a time. Records
// belong to the latest run record of their rank; run records with one run_id
// are one run, in several files too, as where each host of a job wrote its own.
// Torn lines are skipped: TornLines names them. Fails as RecordFilesIn and
// VisitRecords do, and where a rank opens one run twice, as in a copy of a
// file, the ranks of a run disagree about the world size, or a run is of
// virtual GPUs: with the first file's error.
absl::StatusOr<std::vector<RunTrace>> LoadRuns(const std::string& path);

// The record files that `path` names: itself where it is a file, and of a
// folder its *.jsonl in the order of their names. NotFound where there is no
// `path`, or no such file in it.
absl::StatusOr<std::vector<std::string>> RecordFilesIn(const std::string& path);

// "runs/a.jsonl:17: a torn line, ...", for every line that was skipped.
std::vector<std::string> TornLines(absl::Span<const RunTrace> runs);

// One line per file with restarts: their number, the time lost (seconds that
// several of them lost count once) and their causes: "runs/a.jsonl: restarted
// once, 6.4 s lost (...)".
std::vector<std::string> LostTime(absl::Span<const RunTrace> runs);

// When the mean training loss of the last 10 N steps of all N ranks that train
// was at most `loss` for the first time, in seconds. A rank's time is the sum
// of its steps', from its first step on. NaN: never.
double SecondsToLoss(const RunTrace& run, double loss);

// Examples per second of ranks that do not wait for each other's ends: the sum
// of what each of them takes per second, from its second step on.
double ConcurrentExamplesPerSecond(const RunTrace& run);

// How many pushes, over all shards of the parameter servers, had which
// staleness: the rounds of the slowest worker, and the updates, that were
// missing in the parameters from which the gradient was computed.
struct Staleness {
  std::map<int64_t, int64_t> rounds, updates;
};
Staleness StalenessOf(const RunTrace& run);

// FailedPrecondition: the run's file, and what is wrong with it.
absl::Status RunError(const RunTrace& run, absl::string_view reason);

// Fails, saying why, unless the run has every rank, its training did not
// diverge, the ranks recorded the same steps, and their schedule records, if
// any, agree on the replicas.
absl::Status CheckRun(const RunTrace& run);

// "the training diverged: the loss of rank 1 is nan in step 7", or "" if it did
// not. A training diverged if its trainer recorded so, or if a loss (under
// fp16, the losses of 20 successive steps) or a test loss is infinite or NaN.
// Returns "" for ranks that did not communicate, as they trained nothing.
std::string WhyDiverged(const RunTrace& run);

// Returns, for each run, the index of the run that began its job, which may be
// a later one. A run continues a job if it follows a launcher's restart or its
// first step is not step 1, as after --resume: a job of the same trainer with
// the same checkpoint_dir or, without one, with the same file and flags, whose
// latest part began at an earlier step (for a restart, possibly at the same
// one); of several, the one whose latest part precedes the run most closely.
std::vector<size_t> JobsOf(absl::Span<const RunTrace> runs);

// The host of each recorded rank, numbered in the order of their first ranks;
// in files of before 1.8 by the hosts' names.
std::vector<int64_t> HostsOfRanks(const RunTrace& run);

// How many there are.
int64_t CountHosts(const RunTrace& run);

// Of the run's mesh; 1 of an axis that it does not name.
int64_t AxisSize(const RunRecord& run, absl::string_view axis);

// Whether the rank is a parameter server, which takes no examples: what it does
// is no part of a step of those that train.
bool Serves(const RankTrace& rank);

// How many ranks take part in the same examples and report them all: those of
// one dp coordinate. Where the mesh is not known, those of one pipeline, or 1
// without pipelines. Expects a run that CheckRun accepts.
int64_t RanksSharingExamples(const RunTrace& run);

// Replicas that divide the examples of a rank among them, each on a device of
// its own: those of data_parallel; of other trainers 1.
int64_t ReplicasOf(const RunRecord& run);

// The value of one of a run's flags; "" without it.
std::string FlagOf(const RunRecord& run, const std::string& name);

// The same as a number; `otherwise` where there is none.
double NumberFlagOf(const RunRecord& run, const std::string& name,
                    double otherwise);

// Communication was left out (--skip_communication).
bool SkipsCommunication(const RunRecord& run);

// The rows of a run of the communication benchmark; their records are the
// run's.
std::vector<CollectiveRow> CollectiveRows(const RunTrace& run);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_RUN_TRACE_H_
