// The records that cross from running to reading: one struct per kind of line
// in a record file. docs/records.md holds the grammar; record_json turns a
// struct into a line and back; record_writer and record_reader handle files.
//
// Numbers are raw: one value per step and rank. Summaries belong to analysis/.
// Every field carries its unit in its name; counts have none.
#ifndef RANKWISE_RECORDS_RECORD_H_
#define RANKWISE_RECORDS_RECORD_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace rankwise {

// The version written by this code. A reader accepts every minor version of
// its own major version: a newer minor version may add kinds and fields.
inline constexpr int kSchemaMajor = 1;
inline constexpr int kSchemaMinor = 12;

// The machine that a rank ran on. Filled by CollectHostInfo() (run_origin.h).
struct HostInfo {
  std::string hostname;
  std::string cpu_model;  // as /proc/cpuinfo names it
  // Logical cores that the ranks on it may use together.
  int64_t cores = 0;
  int64_t memory_bytes = 0;  // physical, or the control group's limit
};

// Versions of what the binary was built with and runs on; "" where absent.
struct VersionInfo {
  std::string torch;
  std::string cuda;
  std::string nccl;
  std::string compiler;
};

// One axis of the mesh that a run's ranks form.
struct RecordedAxis {
  std::string name;  // "pp", "dp", "cp", "tp"
  int64_t size = 1;
};

// Opens a run. Every rank writes its own, before any other record of its.
struct RunRecord {
  std::string schema_version =  // "major.minor"
      std::to_string(kSchemaMajor) + "." + std::to_string(kSchemaMinor);
  std::string run_id;      // the same on every rank of the run (run_origin.h)
  std::string binary;      // without its folder: "single", "ddp"
  std::string git_commit;  // as in BuildStamp (run_origin.h); before 1.5 that
                           // of the workspace when the run began
  // Every flag of the binary with its value, defaults included, no dashes.
  std::map<std::string, std::string> flags;
  // Both are set from `flags` by SetConfigHashes() (run_origin.h).
  std::string config_hash;   // over all flags
  std::string scaling_hash;  // without the flags that follow the world size
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string backend;  // "gloo", "nccl", ...; "" without communication
  HostInfo host;
  std::vector<std::string> devices;  // of this rank: "cpu", "cuda:0", ...
  int64_t threads_per_rank = 1;      // compute threads of this rank
  VersionInfo versions;
  // Floating-point operations of the model's forward pass for one example, a
  // multiply-add counted as two; 0: not known.
  double forward_flops_per_example = 0;
  // As in BuildStamp. Two runs are of the same code where the hashes are equal
  // and not "".
  std::string source_hash;
  std::string git_state = "unknown";
  std::string example;  // what one is: "image", "sequence"; "" when unknown
  int64_t tokens_per_example = 0;  // 0: examples are not made of tokens
  // In the order of the mesh: the ranks, host by host, count its last axis
  // fastest. The sizes' product is world_size. Empty: not known.
  std::vector<RecordedAxis> mesh;
  // The hosts of the job, numbered in the order of their first ranks, and this
  // rank's among them. As the launcher groups ranks: two agents of torchrun on
  // one machine are two hosts. All 0: not known.
  int64_t host_index = 0;
  int64_t hosts = 0;
  int64_t ranks_on_host = 0;  // of the job, this one among them
  // What one device of this rank can do at most, in the run's precision and
  // threads: as it was measured, or by --peak_tflops. 0: not known.
  double peak_flops_per_second = 0;
  double peak_bytes_per_second = 0;  // between it and its memory
  // Bytes that a step of this rank moves between them at least: estimated
  // (docs/metrics.md); 0: not known.
  double step_bytes = 0;
};

// What a rank only waited for in a step of one unit of sharded data
// parallelism: parameters that are gathered and freed together.
struct UnitWait {
  std::string unit;                   // "block_0"
  double all_gather_seconds = 0;      // for its parameters
  double reduce_scatter_seconds = 0;  // for its gradients
  // All-gathers of the step that were not started before they were needed.
  int64_t prefetch_misses = 0;
};

// One optimizer step of one rank. step_seconds runs from the end of the step
// before (the start of the epoch for the first) to the end of the optimizer
// step, so that the steps of an epoch add up to its time; the parts below lie
// within it, and so do records, console and checkpoints between two steps.
struct StepRecord {
  int64_t rank = 0;
  int64_t step = 0;   // from 1, over the whole run; goes on after a resume
  int64_t epoch = 0;  // from 1
  double loss = 0;    // mean over this rank's examples; may be NaN or infinite
  double step_seconds = 0;
  double data_wait_seconds = 0;     // blocked in the loader
  double forward_seconds = 0;       // model and loss
  double backward_seconds = 0;      // with the gradients' all-reduce
  double optimizer_seconds = 0;     // with gradient clipping and zeroing
  double exposed_comm_seconds = 0;  // the part of forward_seconds and
                                    // backward_seconds that only waited for
                                    // communication; a pipeline's messages
                                    // are in its ScheduleRecord
  int64_t examples = 0;             // of this rank in this step
  // Forward, backward and update, with the communication within, of a step
  // that was launched as one graph: forward_, backward_, optimizer_ and
  // exposed_comm_seconds are 0 then. 0: not captured.
  double captured_seconds = 0;
  // exposed_comm_seconds by the mesh's axis ("dp", "cp", "tp") along which the
  // rank waited. An axis that is missing: 0. Empty: all of it is of "dp".
  std::map<std::string, double> exposed_by_axis_seconds = {};
  // Of sharded data parallelism, by unit, in order of the first forward.
  std::vector<UnitWait> units = {};
  // Of replicas in one process: what the first device does while the others
  // wait for it, within forward_seconds ("scatter", "replicate", "gather",
  // "loss") and backward_seconds ("scatter gradient", "reduce"). All but the
  // loss are also in exposed_comm_seconds.
  std::map<std::string, double> first_device_seconds = {};
};

// One epoch of one rank's training.
struct EpochRecord {
  int64_t rank = 0;
  int64_t epoch = 0;     // from 1
  double mean_loss = 0;  // over this rank's examples
  int64_t examples = 0;  // of this rank
  double seconds = 0;    // training only, without evaluation
};

// One evaluation over the whole test set, all ranks together.
struct EvalRecord {
  int64_t rank = 0;      // that wrote the record
  int64_t epoch = 0;     // after which it ran; 0 before training
  double mean_loss = 0;  // over all predictions of all ranks
  int64_t correct = 0;   // 0 for regression
  int64_t total = 0;     // predictions: examples, or a language model's tokens
  double seconds = 0;    // wall-clock
};

// A restart by a launcher, written when training resumes. Times are Unix
// seconds.
struct RestartRecord {
  int64_t rank = 0;
  int64_t restart = 1;  // as the launcher counts, from 1
  std::string cause;    // "rank 1 (process 7) ended with ..."; "" unknown
  int64_t step = 0;     // the step after which it continues; 0: none
  // The time up to which work is kept: that of the checkpoint, or of the start
  // of the ranks that failed. Later work is lost. NaN: not known.
  double kept_unix_seconds = std::numeric_limits<double>::quiet_NaN();
  // When the first rank failed. NaN: not known.
  double failed_unix_seconds = std::numeric_limits<double>::quiet_NaN();
  double training_unix_seconds = 0;  // when the next step begins
};

// A training that has diverged: the first number that was not finite.
struct DivergenceRecord {
  int64_t rank = 0;   // that wrote the record
  int64_t step = 0;   // the last step before the number was found
  std::string cause;  // "the gradients' norm of step 2 is inf on rank 0"
};

// One worker's push in an update of a parameter server's shard. A round of a
// worker is one push, counted from 1 in every run; a version is the number of
// updates that the shard has had.
struct UpdateRecord {
  int64_t rank = 0;        // of the server
  int64_t step = 0;        // of the server, in which the push was applied
  int64_t worker = 0;      // rank
  int64_t round = 0;       // of that worker
  int64_t read_round = 0;  // up to which what it read had all workers' updates
  int64_t version = 0;     // with this update
  int64_t read_version = 0;  // that the worker had read before it computed
  double loss = 0;           // that came with the push
};

// One checkpoint on disk.
struct CheckpointRecord {
  int64_t rank = 0;
  int64_t step = 0;   // the last step it holds
  int64_t epoch = 0;  // the epoch of that step
  std::string path;
  int64_t bytes = 0;
  double seconds = 0;  // until it was on disk, sync and rename included
  // The part of `seconds` during which training waited. NaN: not known.
  double blocked_seconds = std::numeric_limits<double>::quiet_NaN();
};

// One step of one rank through a pipeline schedule. Where one process runs
// several stages on devices of its own, one record per stage.
struct ScheduleRecord {
  int64_t rank = 0;
  int64_t step = 0;           // as in StepRecord
  std::string schedule;       // "1f1b", or a file's path
  int64_t pipeline_rank = 0;  // this rank's place among the pipeline's
  int64_t pipeline_size = 1;
  int64_t replica = 0;  // which of the replicated pipelines
  int64_t replicas = 1;
  int64_t stages = 1;  // of the whole model
  int64_t micro_batches = 1;
  double schedule_seconds = 0;  // from entering the schedule to leaving it
  double span_seconds = 0;      // from the first action's start to the last's
                                // end; actions are computation
  double busy_seconds = 0;      // of which actions ran
  double wait_seconds = 0;      // blocked for messages
  // Of wait_seconds, while the awaited message was under way; the rest of the
  // wait was for the peer's computation. NaN: not known.
  double exposed_transfer_seconds = std::numeric_limits<double>::quiet_NaN();
  // What the sends take: with a process per stage by the link's latency and
  // bandwidth, measured as the run starts; in one process the copies' own time.
  double transfer_seconds = 0;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  int64_t peak_activations = 0;  // of one stage and micro-batch each
  // By simulating the schedule with measured costs; NaN before the costs are
  // known.
  double predicted_seconds = 0;
  double predicted_span_bubble = 0;  // share, 0 to 1
  double predicted_wall_bubble = 0;
  // What the schedule was planned for, of this rank's stage: "F", "I", "W", and
  // "message" to the next. Empty where it does not depend on what was measured.
  std::map<std::string, double> planned_for_seconds = {};
};

// A call of a collective and how it was timed: what distinguishes one row of
// the communication benchmark from another.
struct CallDescription {
  std::string collective;      // "all_reduce"
  std::string layer = "c10d";  // through which the call went: also "nccl"
  std::vector<int64_t> ranks;  // of the group, as ranks of the job; empty: all
  int64_t bytes = 0;           // of a call
  int64_t count = 0;           // elements of a call
  std::string dtype;           // "float32"; "" without elements
  std::string op;              // "sum"; "" where nothing is reduced
  int64_t root = -1;           // rank in the group; -1: none
  bool in_place = false;
  int64_t in_flight = 1;         // calls started before the first is waited for
  std::string cache = "hot";     // or "cold": emptied each time
  std::string sync = "barrier";  // "window", "none": how iterations start
  double trips = 1;  // a call's time is that of an iteration divided by it
  std::string timing =
      "host";               // the clock of the times; "events": the device's
  bool graph = false;       // an iteration is one launch of a captured graph
  bool registered = false;  // its buffers are registered with the library
  std::string algorithm;    // that the library chose: "Ring"; "" unknown
  std::string protocol;     // "LL", "Simple"; "" unknown
  // busbw = bytes / seconds * bus_factor; NaN: not known.
  double bus_factor = std::numeric_limits<double>::quiet_NaN();
  int64_t group_size = 0;  // ranks that make the call together; 0: not known
  // Groups that made it at the same time, this one among them; 0: not known.
  int64_t concurrent_groups = 0;

  friend auto operator<=>(const CallDescription&,
                          const CallDescription&) = default;
};

// What one rank measured of one row of the communication benchmark: its raw
// samples. The lists over iterations are equally long.
struct CollectiveRecord : CallDescription {
  int64_t rank = 0;
  int64_t launch = 0;           // which of several launches of the job
  int64_t wrong = -1;           // elements of this rank; -1: not checked
  std::string end = "counted";  // "precise", "out_of_time", "max_iterations",
                                // "interrupted": why the iterations ended
  std::vector<double> seconds;  // of each iteration on this rank
  // Of each iteration, on rank 0's clock since the earliest start of any rank.
  std::vector<double> start_seconds;
  std::vector<int64_t> late;  // iterations not counted: some rank started late
  double clock_error_seconds = 0;  // bound of the error of start_seconds
};

// One rank's share of a collective beside computation. The lists hold one
// value per iteration and are equally long.
struct OverlapRecord {
  int64_t rank = 0;
  std::string collective;
  int64_t bytes = 0;
  std::string dtype;  // "" without elements
  std::string op;     // "sum"; "" where nothing is reduced
  bool in_place = false;
  int64_t gemm_size = 1;                     // of square matrices
  std::vector<double> compute_seconds;       // the computation alone
  std::vector<double> comm_seconds;          // the collective alone
  std::vector<double> both_seconds;          // both started together
  std::vector<double> both_compute_seconds;  // of these, the computation's own
  std::vector<double> both_comm_seconds;     // and the collective's own
};

// A message or collective that a rank took part in.
struct RecordedTransfer {
  std::string op;     // "all_reduce", "send", "recv", ...
  int64_t bytes = 0;  // of this rank's buffer
  int64_t count = 0;  // elements of it
  std::string dtype;  // "float32"
  int64_t peer = -1;  // the other rank of the job, or the root; or none
  std::vector<int64_t> ranks;  // of the group, as ranks of the job; empty: all
  double start_seconds = 0;    // since the step began
  double end_seconds = 0;      // NaN: not observed
  // When the rank began to wait for it; NaN: not observed.
  double wait_start_seconds = std::numeric_limits<double>::quiet_NaN();
  std::string group = {};  // "tp", "dp_cp"; "" for the group of all ranks
};

// What one rank communicated in one training step.
struct TrafficRecord {
  int64_t rank = 0;
  int64_t step = 0;                      // as in StepRecord
  std::vector<RecordedTransfer> events;  // in the order of their start
  double step_seconds = 0;               // as in StepRecord
  double exposed_comm_seconds = 0;  // as in StepRecord, or a pipeline's wait
};

// Where a rank ran, beyond the run record: what may explain its times.
struct EnvironmentRecord {
  int64_t rank = 0;
  std::string topology;       // "1 package, 2 cores, 4 PUs, 1 NUMA node, ..."
  std::vector<int64_t> cpus;  // logical CPUs that the process may run on
  // Variables that steer communication and threads, of those that are set.
  std::map<std::string, std::string> variables;
};

// What a rank's training holds, by kind: the most of each at any time of a
// step. All 0: not known.
struct MemoryParts {
  int64_t parameter_bytes = 0;  // that the rank keeps between steps
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;   // the optimizer's state
  int64_t unsharded_bytes = 0;   // buffers of gathered parameters and gradients
  int64_t activation_bytes = 0;  // that forward keeps for backward
};

// The most memory that a rank held during its run. Written as the run ends.
struct MemoryRecord {
  int64_t rank = 0;
  int64_t peak_host_bytes = 0;    // resident, of the process
  int64_t peak_device_bytes = 0;  // of its accelerators; 0 without any
  MemoryParts measured = {};
  MemoryParts computed = {};  // what the formulas say
};

// One layer of the model, timed in passes over one batch after training. The
// lists hold one value per pass and are equally long.
struct LayerRecord {
  int64_t rank = 0;
  int64_t layer = 0;  // of the model, from 0
  std::string name;
  int64_t examples = 0;  // of a pass
  // Floating-point operations of a pass, and the bytes that it has to move
  // between the device and its memory at least.
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
  double start_seconds = 0;  // since the first start on any rank of the replica
  double end_seconds = 0;
};

// When a rank's actions ran in one step of a pipeline, as measured or as
// simulated with measured costs.
struct TimelineRecord {
  int64_t rank = 0;
  int64_t pipeline_rank = 0;  // as in ScheduleRecord; 0 in files of before 1.4
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
