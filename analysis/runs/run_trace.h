// A recorded run: the records of all of its ranks.
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
  std::vector<StepRecord> steps = {};  // in order
  // in the order they were written
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
  std::string source;  // file name for messages; the first of several
  // by rank; complete only if CheckRun returns OK
  std::vector<RankTrace> ranks;
  // Skipped lines by file; for a file with several runs, in its first run.
  std::map<std::string, std::vector<int64_t>> torn_lines = {};
};

// Reads every run of RecordFilesIn(path), several files at a time. Records
// belong to the latest run record of their rank; run records with the same
// run_id form one run, even across files, as when each host of a job writes its
// own. Skips torn lines, which TornLines lists. Fails if RecordFilesIn or
// VisitRecords does, if a rank opens a run twice, as in a copy of a file, if
// the ranks of a run disagree about the world size, or if a run used virtual
// GPUs. Returns the first file's error.
absl::StatusOr<std::vector<RunTrace>> LoadRuns(const std::string& path);

// Returns `path` itself if it is a file, or the *.jsonl files of a folder in
// name order. NotFound if `path` does not exist or the folder has none.
absl::StatusOr<std::vector<std::string>> RecordFilesIn(const std::string& path);

// Returns "runs/a.jsonl:17: a torn line, ..." for every skipped line.
std::vector<std::string> TornLines(absl::Span<const RunTrace> runs);

// Returns one line per file with restarts: their number, the lost time
// (overlapping losses count once) and their causes: "runs/a.jsonl: restarted
// once, 6.4 s lost (...)".
std::vector<std::string> LostTime(absl::Span<const RunTrace> runs);

// Returns when the mean training loss of the last 10 N steps of all N training
// ranks first was at most `loss`, in seconds. A rank's time is the sum of its
// step durations from its first step on. NaN if never.
double SecondsToLoss(const RunTrace& run, double loss);

// Returns the throughput of ranks that do not synchronize: the sum of each
// rank's examples per second, from its second step on.
double ConcurrentExamplesPerSecond(const RunTrace& run);

// Number of pushes by staleness, over all shards of the parameter servers: the
// slowest worker's rounds, and the updates, missing from the parameters used to
// compute the gradient.
struct Staleness {
  std::map<int64_t, int64_t> rounds, updates;
};
Staleness StalenessOf(const RunTrace& run);

// Returns FailedPrecondition with the run's file and the reason.
absl::Status RunError(const RunTrace& run, absl::string_view reason);

// Fails unless the run has every rank, did not diverge, has the same steps on
// all ranks, and its schedule records, if any, agree on the replicas. The error
// gives the reason.
absl::Status CheckRun(const RunTrace& run);

// Returns "the training diverged: the loss of rank 1 is nan in step 7", or "".
// A training diverged if its trainer recorded so, or if a loss (under fp16, the
// losses of 20 successive steps) or a test loss is infinite or NaN. Returns ""
// for ranks that did not communicate, as they did not train a model.
std::string WhyDiverged(const RunTrace& run);

// Returns, for each run, the index of the run that began its job, which may be
// a later one. A run continues a job after a launcher's restart, or if its
// first step is not step 1, as after --resume. It continues a job of the same
// trainer with the same checkpoint_dir or, without one, with the same file and
// flags, whose latest part began at an earlier step (for a restart, possibly
// the same one); of several, the one whose latest part most closely precedes
// the run.
std::vector<size_t> JobsOf(absl::Span<const RunTrace> runs);

// Returns the host of each recorded rank, numbered by first rank; in files
// before 1.8, derived from host names.
std::vector<int64_t> HostsOfRanks(const RunTrace& run);

// Returns the number of hosts.
int64_t CountHosts(const RunTrace& run);

// Returns the size of an axis of the run's mesh; 1 if it is not listed.
int64_t AxisSize(const RunRecord& run, absl::string_view axis);

// Whether the rank is a parameter server, which processes no examples; its work
// is not part of the training ranks' steps.
bool Serves(const RankTrace& rank);

// Returns the number of ranks that process the same examples and all report
// them: those of one dp coordinate; if the mesh is unknown, those of one
// pipeline, or 1 without pipelines. Requires a run that CheckRun accepts.
int64_t RanksSharingExamples(const RunTrace& run);

// Returns the number of replicas, each on its own device, that divide a rank's
// examples: those of data_parallel; 1 for other trainers.
int64_t ReplicasOf(const RunRecord& run);

// Returns the value of one of the run's flags; "" without it.
std::string FlagOf(const RunRecord& run, const std::string& name);

// Returns the flag's value as a number; `otherwise` if it has none.
double NumberFlagOf(const RunRecord& run, const std::string& name,
                    double otherwise);

// Whether communication was skipped (--skip_communication).
bool SkipsCommunication(const RunRecord& run);

// Returns the rows of a run of the communication benchmark; they point to the
// run's records.
std::vector<CollectiveRow> CollectiveRows(const RunTrace& run);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_RUN_TRACE_H_
