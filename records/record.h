// Records written by runs and read by analyses: one struct per record kind.
// docs/records.md defines the grammar; record_json converts a record to one
// line of JSON and back; record_writer and record_reader handle files.
//
// Values are raw, one per step and rank; analysis/ computes the summaries.
// Field names end in their unit; counts have none.
#ifndef RANKWISE_RECORDS_RECORD_H_
#define RANKWISE_RECORDS_RECORD_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace rankwise {

// Schema version written by this code. A reader accepts every minor version of
// its own major version; a newer minor version may add kinds and fields.
inline constexpr int kSchemaMajor = 1;
inline constexpr int kSchemaMinor = 12;

// The machine a rank ran on. Filled in by CollectHostInfo() (run_origin.h).
struct HostInfo {
  std::string hostname;
  std::string cpu_model;  // as in /proc/cpuinfo
  // logical cores available to all ranks on the machine
  int64_t cores = 0;
  int64_t memory_bytes = 0;  // physical memory, or the control group's limit
};

// Versions of the build's and the machine's software; "" if absent.
struct VersionInfo {
  std::string torch;
  std::string cuda;
  std::string nccl;
  std::string compiler;
};

// One axis of a run's device mesh.
struct RecordedAxis {
  std::string name;  // "pp", "dp", "cp", "tp"
  int64_t size = 1;
};

// Start of a run. Every rank writes its own before any of its other records.
struct RunRecord {
  std::string schema_version =  // "major.minor"
      std::to_string(kSchemaMajor) + "." + std::to_string(kSchemaMinor);
  std::string run_id;      // the same on every rank of the run (run_origin.h)
  std::string binary;      // without its folder: "single", "ddp"
  std::string git_commit;  // as in BuildStamp (run_origin.h); before 1.5, the
                           // workspace's commit when the run began
  // all flags of the binary, without dashes, defaults included
  std::map<std::string, std::string> flags;
  // Both are computed from `flags` by SetConfigHashes() (run_origin.h).
  std::string config_hash;   // over all flags
  std::string scaling_hash;  // without flags that depend on the world size
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string backend;  // "gloo", "nccl", ...; "" without communication
  HostInfo host;
  std::vector<std::string> devices;  // of this rank: "cpu", "cuda:0", ...
  int64_t threads_per_rank = 1;      // compute threads of this rank
  VersionInfo versions;
  // FLOPs of the model's forward pass per example, a multiply-add counted as
  // two; 0 if unknown
  double forward_flops_per_example = 0;
  // As in BuildStamp. Two runs have the same code if their hashes are equal and
  // not "".
  std::string source_hash;
  std::string git_state = "unknown";
  std::string example;  // kind of example: "image", "sequence"; "" if unknown
  int64_t tokens_per_example = 0;  // 0 if examples are not token sequences
  // Axes in mesh order; ranks, host by host, vary fastest along the last axis.
  // The product of the sizes is world_size. Empty if unknown.
  std::vector<RecordedAxis> mesh;
  // Hosts of the job, numbered by their first rank, and the index of this
  // rank's host. A host is a launcher's group of ranks: two torchrun agents on
  // one machine are two hosts. All three are 0 if unknown.
  int64_t host_index = 0;
  int64_t hosts = 0;
  int64_t ranks_on_host = 0;  // including this rank
  // Peak rates of one device of this rank at the run's precision and thread
  // count, measured or from --peak_tflops; 0 if unknown
  double peak_flops_per_second = 0;
  double peak_bytes_per_second = 0;  // device memory bandwidth
  // estimated minimum traffic between device and memory per step of this rank
  // (docs/metrics.md); 0 if unknown
  double step_bytes = 0;
};

// Exposed communication of one unit of sharded data parallelism in one step. A
// unit is a set of parameters that are gathered and freed together.
struct UnitWait {
  std::string unit;                   // "block_0"
  double all_gather_seconds = 0;      // waiting for its parameters
  double reduce_scatter_seconds = 0;  // waiting for its gradients
  // all-gathers started only when their parameters were needed
  int64_t prefetch_misses = 0;
};

// One optimizer step of one rank. step_seconds runs from the end of the
// previous step (for the first, the start of the epoch) to the end of the
// optimizer update, so the steps of an epoch sum to its duration. It contains
// the parts below, and the records, console output and checkpoints between two
// steps.
struct StepRecord {
  int64_t rank = 0;
  int64_t step = 0;   // from 1, over the whole run; continues after a resume
  int64_t epoch = 0;  // from 1
  double loss = 0;    // mean over this rank's examples; may be non-finite
  double step_seconds = 0;
  double data_wait_seconds = 0;  // blocked in the data loader
  double forward_seconds = 0;    // model and loss
  double backward_seconds = 0;   // including the gradients' all-reduce
  double optimizer_seconds = 0;  // including gradient clipping and zeroing
  // part of forward_seconds and backward_seconds spent waiting for
  // communication; a pipeline's messages are in its ScheduleRecord
  double exposed_comm_seconds = 0;
  int64_t examples = 0;  // of this rank in this step
  // Forward, backward, update and their communication in a step launched as one
  // captured graph; forward_, backward_, optimizer_ and exposed_comm_seconds
  // are then 0. 0 if the step was not captured.
  double captured_seconds = 0;
  // exposed_comm_seconds by mesh axis ("dp", "cp", "tp"). A missing axis has 0;
  // an empty map means that all of it belongs to "dp".
  std::map<std::string, double> exposed_by_axis_seconds = {};
  // Sharded data parallelism: its units, in order of their first forward pass.
  std::vector<UnitWait> units = {};
  // Replicas in one process: time during which the first device works and the
  // others wait, within forward_seconds ("scatter", "replicate", "gather",
  // "loss") and backward_seconds ("scatter gradient", "reduce").
  // exposed_comm_seconds includes all but the loss.
  std::map<std::string, double> first_device_seconds = {};
};

// One epoch of one rank's training.
struct EpochRecord {
  int64_t rank = 0;
  int64_t epoch = 0;     // from 1
  double mean_loss = 0;  // over this rank's examples
  int64_t examples = 0;  // of this rank
  double seconds = 0;    // training only, excluding evaluation
};

// One evaluation over the whole test set, all ranks together.
struct EvalRecord {
  int64_t rank = 0;      // the rank that wrote the record
  int64_t epoch = 0;     // epoch before the evaluation; 0 before training
  double mean_loss = 0;  // over all predictions of all ranks
  int64_t correct = 0;   // 0 for regression
  int64_t total = 0;     // predictions: examples, or tokens of a language model
  double seconds = 0;    // wall-clock time
};

// A restart by a launcher, written when training resumes. Times are Unix
// seconds.
struct RestartRecord {
  int64_t rank = 0;
  int64_t restart = 1;  // the launcher's count, from 1
  std::string cause;    // "rank 1 (process 7) ended with ..."; "" if unknown
  int64_t step = 0;     // last step before the resume; 0 without one
  // End of the work that is preserved: the time of the checkpoint, or the start
  // of the failed ranks. Later work is lost. NaN if unknown.
  double kept_unix_seconds = std::numeric_limits<double>::quiet_NaN();
  // Time of the first rank's failure; NaN if unknown.
  double failed_unix_seconds = std::numeric_limits<double>::quiet_NaN();
  double training_unix_seconds = 0;  // start of the next step
};

// The first non-finite number of a diverged training run.
struct DivergenceRecord {
  int64_t rank = 0;   // the rank that wrote the record
  int64_t step = 0;   // last step before the number was detected
  std::string cause;  // "the gradients' norm of step 2 is inf on rank 0"
};

// One worker's push in an update of a parameter server's shard. A round is one
// push of a worker, counted from 1 in every run; a version is the number of
// updates applied to the shard.
struct UpdateRecord {
  int64_t rank = 0;    // the server's rank
  int64_t step = 0;    // the server's step in which the push was applied
  int64_t worker = 0;  // the worker's rank
  int64_t round = 0;   // the worker's round
  // last round of which the worker had read all updates
  int64_t read_round = 0;
  int64_t version = 0;       // after this update
  int64_t read_version = 0;  // version that the worker's gradients are based on
  double loss = 0;           // sent with the push
};

// One checkpoint on disk.
struct CheckpointRecord {
  int64_t rank = 0;
  int64_t step = 0;   // last completed step
  int64_t epoch = 0;  // the epoch of that step
  std::string path;
  int64_t bytes = 0;
  double seconds = 0;  // until durable on disk, including sync and rename
  // part of `seconds` during which training was blocked; NaN if unknown
  double blocked_seconds = std::numeric_limits<double>::quiet_NaN();
};

// One step of one rank through a pipeline schedule. A process that runs several
// stages on its own devices writes one record per stage.
struct ScheduleRecord {
  int64_t rank = 0;
  int64_t step = 0;           // as in StepRecord
  std::string schedule;       // "1f1b", or the path of a schedule file
  int64_t pipeline_rank = 0;  // this rank's position in the pipeline
  int64_t pipeline_size = 1;
  int64_t replica = 0;  // index of this replica of the pipeline
  int64_t replicas = 1;
  int64_t stages = 1;  // in the whole model
  int64_t micro_batches = 1;
  double schedule_seconds = 0;  // from entry to exit of the schedule
  double span_seconds = 0;  // from the first action's start to the last one's
                            // end; actions are computation
  double busy_seconds = 0;  // total duration of the actions
  double wait_seconds = 0;  // blocked on messages
  // part of wait_seconds during which the awaited message was in transit; the
  // rest was spent waiting for the peer's computation. NaN if unknown.
  double exposed_transfer_seconds = std::numeric_limits<double>::quiet_NaN();
  // Duration of the sends: with a process per stage, computed from the link's
  // latency and bandwidth, measured at startup; in one process, the measured
  // copies.
  double transfer_seconds = 0;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  int64_t peak_activations = 0;  // each of one stage and micro-batch
  // Simulated from measured costs; NaN until the costs are known.
  double predicted_seconds = 0;
  double predicted_span_bubble = 0;  // fraction, 0 to 1
  double predicted_wall_bubble = 0;
  // Costs used to plan the schedule of this rank's stage: "F", "I", "W", and
  // "message" to the next stage. Empty if the schedule does not depend on
  // measurements.
  std::map<std::string, double> planned_for_seconds = {};
};

// A collective call and its timing method: the fields that distinguish the rows
// of the communication benchmark.
struct CallDescription {
  std::string collective;      // "all_reduce"
  std::string layer = "c10d";  // API of the call; also "nccl"
  std::vector<int64_t> ranks;  // job ranks of the group; empty if all
  int64_t bytes = 0;           // per call
  int64_t count = 0;           // elements per call
  std::string dtype;           // "float32"; "" without elements
  std::string op;              // "sum"; "" without a reduction
  int64_t root = -1;           // rank in the group; -1 without a root
  bool in_place = false;
  int64_t in_flight = 1;         // calls started before the first wait
  std::string cache = "hot";     // or "cold": overwritten before each iteration
  std::string sync = "barrier";  // or "window", "none": how iterations start
  // divides an iteration's time; 2 if half of a round trip is reported
  double calls_per_iteration = 1;
  std::string timing = "host";  // clock of the times; "events": device events
  bool graph = false;           // each iteration launches a captured graph
  bool registered = false;      // buffers are registered with the library
  std::string algorithm;        // chosen by the library: "Ring"; "" if unknown
  std::string protocol;         // "LL", "Simple"; "" if unknown
  // busbw = bytes / seconds * bus_factor; NaN if unknown
  double bus_factor = std::numeric_limits<double>::quiet_NaN();
  int64_t group_size = 0;  // ranks taking part in the call; 0 if unknown
  // groups making the call concurrently, including this one; 0 if unknown
  int64_t concurrent_groups = 0;

  friend auto operator<=>(const CallDescription&,
                          const CallDescription&) = default;
};

// One rank's raw samples of one row of the communication benchmark. All lists
// over iterations have equal length.
struct CollectiveRecord : CallDescription {
  int64_t rank = 0;
  int64_t launch = 0;  // index of the job launch
  int64_t wrong = -1;  // this rank's wrong elements; -1 if unchecked
  // why the iterations ended; also "precise", "out_of_time", "max_iterations",
  // "interrupted"
  std::string end = "counted";
  std::vector<double> seconds;  // duration of each iteration on this rank
  // start of each iteration on rank 0's clock, since the earliest start of any
  // rank
  std::vector<double> start_seconds;
  std::vector<int64_t> late;       // excluded iterations: a rank started late
  double clock_error_seconds = 0;  // error bound of start_seconds
};

// One rank's samples of a collective overlapped with computation: one value per
// iteration, lists of equal length.
struct OverlapRecord {
  int64_t rank = 0;
  std::string collective;
  int64_t bytes = 0;
  std::string dtype;  // "" without elements
  std::string op;     // "sum"; "" without a reduction
  bool in_place = false;
  int64_t gemm_size = 1;                // side of the square matrices
  std::vector<double> compute_seconds;  // the computation alone
  std::vector<double> comm_seconds;     // the collective alone
  std::vector<double> both_seconds;     // both started together
  // computation's part of both_seconds
  std::vector<double> both_compute_seconds;
  std::vector<double> both_comm_seconds;  // collective's part of both_seconds
};

// A message or collective in which a rank took part.
struct RecordedTransfer {
  std::string op;              // "all_reduce", "send", "recv", ...
  int64_t bytes = 0;           // of this rank's buffer
  int64_t count = 0;           // elements of the buffer
  std::string dtype;           // "float32"
  int64_t peer = -1;           // job rank of the peer or root; -1 without one
  std::vector<int64_t> ranks;  // job ranks of the group; empty if all
  double start_seconds = 0;    // since the start of the step
  double end_seconds = 0;      // NaN if not observed
  // start of the rank's wait for it; NaN if not observed
  double wait_start_seconds = std::numeric_limits<double>::quiet_NaN();
  std::string group = {};  // "tp", "dp_cp"; "" for the group of all ranks
};

// The communication of one rank in one training step.
struct TrafficRecord {
  int64_t rank = 0;
  int64_t step = 0;                      // as in StepRecord
  std::vector<RecordedTransfer> events;  // in the order of their start
  double step_seconds = 0;               // as in StepRecord
  double exposed_comm_seconds = 0;  // as in StepRecord, or the pipeline's wait
};

// The environment of a rank beyond its RunRecord, to explain its times.
struct EnvironmentRecord {
  int64_t rank = 0;
  std::string topology;       // "1 package, 2 cores, 4 PUs, 1 NUMA node, ..."
  std::vector<int64_t> cpus;  // logical CPUs the process may run on
  // environment variables that affect communication and threads, if set
  std::map<std::string, std::string> variables;
};

// Memory of a rank's training by kind: the peak of each within a step. All are
// 0 if unknown.
struct MemoryParts {
  int64_t parameter_bytes = 0;  // kept by the rank between steps
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;   // the optimizer's state
  int64_t unsharded_bytes = 0;   // buffers of gathered parameters and gradients
  int64_t activation_bytes = 0;  // kept by forward for backward
};

// A rank's peak memory over its run. Written at the end of the run.
struct MemoryRecord {
  int64_t rank = 0;
  int64_t peak_host_bytes = 0;    // resident set of the process
  int64_t peak_device_bytes = 0;  // of its accelerators; 0 without any
  MemoryParts measured = {};
  MemoryParts computed = {};  // by the formulas of docs/memory.md
};

// One layer of the model, timed in passes over one batch after training. Lists
// hold one value per pass and have equal length.
struct LayerRecord {
  int64_t rank = 0;
  int64_t layer = 0;  // index in the model, from 0
  std::string name;
  int64_t examples = 0;  // per pass
  // FLOPs per pass, and minimum traffic between the device and its memory
  double forward_flops = 0;
  double backward_flops = 0;
  double forward_bytes = 0;
  double backward_bytes = 0;
  std::vector<double> forward_seconds = {};
  std::vector<double> backward_seconds = {};
};

// One action of a pipeline's stage.
struct RecordedSpan {
  std::string action;  // "F", "B", "I", "W", as in docs/pipeline.md
  int64_t stage = 0;
  int64_t micro_batch = 0;
  // since the earliest start on any rank of the replica
  double start_seconds = 0;
  double end_seconds = 0;
};

// The actions of a rank in one pipeline step, either measured or simulated from
// measured costs.
struct TimelineRecord {
  int64_t rank = 0;
  int64_t pipeline_rank = 0;  // as in ScheduleRecord; 0 in files before 1.4
  int64_t step = 0;
  std::string schedule;             // as in ScheduleRecord
  std::string origin = "measured";  // or "simulated"
  std::vector<RecordedSpan> spans;  // in order of start
};

using Record = std::variant<RunRecord, StepRecord, EpochRecord, EvalRecord,
                            CheckpointRecord, ScheduleRecord, CollectiveRecord,
                            OverlapRecord, TrafficRecord, EnvironmentRecord,
                            MemoryRecord, TimelineRecord, RestartRecord,
                            UpdateRecord, LayerRecord, DivergenceRecord>;

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RECORD_H_
