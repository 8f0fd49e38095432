// The fields of every record, listed once, in the order in which they are
// written: docs/records.md as code. `fields` is a FieldWriter and `record`
// const, or a FieldReader and `record` mutable (record_json.cc); both classes
// have the methods used here. A field added to a kind by a minor version
// follows `if (fields.Has(name))`, which is false if an older file lacks it;
// the field then keeps its default.
#ifndef RANKWISE_RECORDS_RECORD_FIELDS_H_
#define RANKWISE_RECORDS_RECORD_FIELDS_H_

#include <iterator>
#include <type_traits>
#include <variant>

#include "absl/algorithm/container.h"
#include "records/record.h"

namespace rankwise {

template <typename Fields, typename R>
void ListCollectiveFields(Fields& fields, R& record) {
  fields.Count("rank", record.rank);
  fields.Text("collective", record.collective);
  fields.Text("layer", record.layer);
  fields.CountList("ranks", record.ranks);
  fields.Count("bytes", record.bytes);
  fields.Count("count", record.count);
  fields.Text("dtype", record.dtype);
  fields.Text("op", record.op);
  fields.Count("root", record.root, -1);
  fields.Flag("in_place", record.in_place);
  fields.Count("in_flight", record.in_flight, 1);
  fields.Choice("cache", record.cache, {"hot", "cold"});
  fields.Choice("sync", record.sync, {"barrier", "window", "none"});
  fields.Count("launch", record.launch);
  fields.Number("trips", record.calls_per_iteration);
  fields.Count("wrong", record.wrong, -1);
  fields.Choice(
      "end", record.end,
      {"counted", "precise", "out_of_time", "max_iterations", "interrupted"});
  fields.SecondsList("seconds", record.seconds);
  fields.SecondsList("start_seconds", record.start_seconds);
  fields.CountList("late", record.late);
  fields.Seconds("clock_error_seconds", record.clock_error_seconds);
  if (fields.Has("timing")) {
    fields.Choice("timing", record.timing, {"host", "events"});
    fields.Flag("graph", record.graph);
    fields.Flag("registered", record.registered);
    fields.Text("algorithm", record.algorithm);
    fields.Text("protocol", record.protocol);
  }
  if (fields.Has("bus_factor")) {
    fields.Estimate("bus_factor", record.bus_factor);
    fields.Count("group_size", record.group_size);
  }
  if (fields.Has("concurrent_groups"))
    fields.Count("concurrent_groups", record.concurrent_groups);
}

template <typename Fields, typename R>
void CheckCollective(Fields& fields, const R& record) {
  const auto iterations = static_cast<int64_t>(record.seconds.size());
  fields.Check(
      record.calls_per_iteration > 0 && record.calls_per_iteration < 1e9,
      "\"trips\" should be above 0");
  fields.Check(record.start_seconds.size() == record.seconds.size(),
               "\"seconds\" and \"start_seconds\" differ in length");
  fields.Check(
      record.ranks.empty() || absl::c_linear_search(record.ranks, record.rank),
      "\"rank\" is none of \"ranks\"");
  fields.Check(
      record.group_size == 0 || record.ranks.empty() ||
          record.group_size == static_cast<int64_t>(record.ranks.size()),
      "\"group_size\" is not the number of \"ranks\"");
  fields.Check(
      absl::c_all_of(record.late,
                     [iterations](int64_t i) { return i < iterations; }),
      "\"late\" names an iteration that \"seconds\" does not have");
}

template <typename Fields, typename R>
void ListOverlapFields(Fields& fields, R& record) {
  fields.Count("rank", record.rank);
  fields.Text("collective", record.collective);
  fields.Count("bytes", record.bytes);
  fields.Text("dtype", record.dtype);
  fields.Text("op", record.op);
  fields.Flag("in_place", record.in_place);
  fields.Count("gemm_size", record.gemm_size, 1);
  fields.SecondsList("compute_seconds", record.compute_seconds);
  fields.SecondsList("comm_seconds", record.comm_seconds);
  fields.SecondsList("both_seconds", record.both_seconds);
  fields.SecondsList("both_compute_seconds", record.both_compute_seconds);
  fields.SecondsList("both_comm_seconds", record.both_comm_seconds);
  const size_t iterations = record.compute_seconds.size();
  fields.Check(record.comm_seconds.size() == iterations &&
                   record.both_seconds.size() == iterations &&
                   record.both_compute_seconds.size() == iterations &&
                   record.both_comm_seconds.size() == iterations,
               "the lists of seconds differ in length");
}

template <typename Fields, typename R>
void ListTrafficEventFields(Fields& fields, R& record) {
  fields.Text("op", record.op);
  fields.Count("bytes", record.bytes);
  fields.Count("count", record.count);
  fields.Text("dtype", record.dtype);
  fields.Count("peer", record.peer, -1);
  fields.CountList("ranks", record.ranks);
  fields.Seconds("start_seconds", record.start_seconds);
  fields.Estimate("end_seconds", record.end_seconds);
  fields.Estimate("wait_start_seconds", record.wait_start_seconds);
  fields.Check(!(record.end_seconds < record.start_seconds),
               "\"end_seconds\" is before \"start_seconds\"");
  fields.Check(!(record.wait_start_seconds < record.start_seconds),
               "\"wait_start_seconds\" is before \"start_seconds\"");
  if (fields.Has("group")) fields.Text("group", record.group);
}

// Whether the number of ranks in `mesh` is `world_size`.
inline bool HasRanks(const std::vector<RecordedAxis>& mesh,
                     int64_t world_size) {
  double ranks = 1;  // a damaged record's product may exceed int64_t
  for (const RecordedAxis& axis : mesh) ranks *= static_cast<double>(axis.size);
  return ranks == static_cast<double>(world_size);
}

inline bool IsAmount(double value) { return value >= 0 && value < 1e30; }

template <typename Fields, typename R>
void ListFields(Fields& fields, R& record) {
  using T = std::remove_const_t<R>;
  if constexpr (std::is_same_v<T, HostInfo>) {
    fields.Text("hostname", record.hostname);
    fields.Text("cpu_model", record.cpu_model);
    fields.Count("cores", record.cores);
    fields.Count("memory_bytes", record.memory_bytes);
  } else if constexpr (std::is_same_v<T, VersionInfo>) {
    fields.Text("torch", record.torch);
    fields.Text("cuda", record.cuda);
    fields.Text("nccl", record.nccl);
    fields.Text("compiler", record.compiler);
  } else if constexpr (std::is_same_v<T, RunRecord>) {
    fields.Version("schema_version", record.schema_version);
    fields.Text("run_id", record.run_id);
    fields.Text("binary", record.binary);
    fields.Text("git_commit", record.git_commit);
    fields.TextMap("flags", record.flags);
    fields.Text("config_hash", record.config_hash);
    fields.Text("scaling_hash", record.scaling_hash);
    fields.Count("rank", record.rank);
    fields.Count("world_size", record.world_size, 1);
    fields.Text("backend", record.backend);
    fields.Object("host", record.host);
    fields.TextList("devices", record.devices);
    fields.Count("threads_per_rank", record.threads_per_rank, 1);
    fields.Object("versions", record.versions);
    if (fields.Has("forward_flops_per_example")) {
      fields.Number("forward_flops_per_example",
                    record.forward_flops_per_example);
    }
    fields.Check(IsAmount(record.forward_flops_per_example),
                 "\"forward_flops_per_example\" should be 0 or more");
    if (fields.Has("source_hash")) {  // implies the other three fields of 1.5
      fields.Text("source_hash", record.source_hash);
      fields.Choice("git_state", record.git_state,
                    {"clean", "modified", "unknown"});
      fields.Text("example", record.example);
      fields.Count("tokens_per_example", record.tokens_per_example);
    }
    if (fields.Has("mesh")) fields.Objects("mesh", record.mesh);
    fields.Check(
        record.mesh.empty() || HasRanks(record.mesh, record.world_size),
        "the product of the sizes in \"mesh\" is not \"world_size\"");
    if (fields.Has("host_index")) {  // implies the other two fields of 1.8
      fields.Count("host_index", record.host_index);
      fields.Count("hosts", record.hosts);
      fields.Count("ranks_on_host", record.ranks_on_host);
    }
    // implies the other two fields of 1.11
    if (fields.Has("peak_flops_per_second")) {
      fields.Number("peak_flops_per_second", record.peak_flops_per_second);
      fields.Number("peak_bytes_per_second", record.peak_bytes_per_second);
      fields.Number("step_bytes", record.step_bytes);
    }
    fields.Check(IsAmount(record.peak_flops_per_second) &&
                     IsAmount(record.peak_bytes_per_second) &&
                     IsAmount(record.step_bytes),
                 "the peaks and \"step_bytes\" should be 0 or more");
    fields.Below("rank", record.rank, "world_size", record.world_size);
  } else if constexpr (std::is_same_v<T, RecordedAxis>) {
    fields.Text("name", record.name);
    fields.Count("size", record.size, 1);
  } else if constexpr (std::is_same_v<T, StepRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("step", record.step);
    fields.Count("epoch", record.epoch);
    fields.Number("loss", record.loss);
    fields.Seconds("step_seconds", record.step_seconds);
    fields.Seconds("data_wait_seconds", record.data_wait_seconds);
    fields.Seconds("forward_seconds", record.forward_seconds);
    fields.Seconds("backward_seconds", record.backward_seconds);
    fields.Seconds("optimizer_seconds", record.optimizer_seconds);
    fields.Seconds("exposed_comm_seconds", record.exposed_comm_seconds);
    fields.Count("examples", record.examples);
    if (fields.Has("captured_seconds")) {
      fields.Seconds("captured_seconds", record.captured_seconds);
    }
    if (fields.Has("exposed_by_axis_seconds")) {
      fields.SecondsMap("exposed_by_axis_seconds",
                        record.exposed_by_axis_seconds);
    }
    if (fields.Has("units")) fields.Objects("units", record.units);
    if (fields.Has("first_device_seconds")) {
      fields.SecondsMap("first_device_seconds", record.first_device_seconds);
    }
  } else if constexpr (std::is_same_v<T, UnitWait>) {
    fields.Text("unit", record.unit);
    fields.Seconds("all_gather_seconds", record.all_gather_seconds);
    fields.Seconds("reduce_scatter_seconds", record.reduce_scatter_seconds);
    fields.Count("prefetch_misses", record.prefetch_misses);
  } else if constexpr (std::is_same_v<T, EpochRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("epoch", record.epoch);
    fields.Number("mean_loss", record.mean_loss);
    fields.Count("examples", record.examples);
    fields.Seconds("seconds", record.seconds);
  } else if constexpr (std::is_same_v<T, EvalRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("epoch", record.epoch);
    fields.Number("mean_loss", record.mean_loss);
    fields.Count("correct", record.correct);
    fields.Count("total", record.total);
    fields.Seconds("seconds", record.seconds);
  } else if constexpr (std::is_same_v<T, CheckpointRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("step", record.step);
    fields.Count("epoch", record.epoch);
    fields.Text("path", record.path);
    fields.Count("bytes", record.bytes);
    fields.Seconds("seconds", record.seconds);
    if (fields.Has("blocked_seconds"))
      fields.Estimate("blocked_seconds", record.blocked_seconds);
  } else if constexpr (std::is_same_v<T, UpdateRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("step", record.step);
    fields.Count("worker", record.worker);
    fields.Count("round", record.round, 1);
    fields.Count("read_round", record.read_round);
    fields.Count("version", record.version, 1);
    fields.Count("read_version", record.read_version);
    fields.Number("loss", record.loss);
    fields.Below("read_round", record.read_round, "round", record.round);
    fields.Below("read_version", record.read_version, "version",
                 record.version);
  } else if constexpr (std::is_same_v<T, RestartRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("restart", record.restart, 1);
    fields.Text("cause", record.cause);
    fields.Count("step", record.step);
    fields.Estimate("kept_unix_seconds", record.kept_unix_seconds);
    fields.Estimate("failed_unix_seconds", record.failed_unix_seconds);
    fields.Seconds("training_unix_seconds", record.training_unix_seconds);
  } else if constexpr (std::is_same_v<T, DivergenceRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("step", record.step);
    fields.Text("cause", record.cause);
  } else if constexpr (std::is_same_v<T, ScheduleRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("step", record.step);
    fields.Text("schedule", record.schedule);
    fields.Count("pipeline_rank", record.pipeline_rank);
    fields.Count("pipeline_size", record.pipeline_size, 1);
    fields.Count("replica", record.replica);
    fields.Count("replicas", record.replicas, 1);
    fields.Count("stages", record.stages, 1);
    fields.Count("micro_batches", record.micro_batches, 1);
    fields.Seconds("schedule_seconds", record.schedule_seconds);
    fields.Seconds("span_seconds", record.span_seconds);
    fields.Seconds("busy_seconds", record.busy_seconds);
    fields.Seconds("wait_seconds", record.wait_seconds);
    if (fields.Has("exposed_transfer_seconds")) {
      fields.Estimate("exposed_transfer_seconds",
                      record.exposed_transfer_seconds);
    }
    fields.Seconds("transfer_seconds", record.transfer_seconds);
    fields.Count("sent_bytes", record.sent_bytes);
    fields.Count("received_bytes", record.received_bytes);
    fields.Count("peak_activations", record.peak_activations);
    fields.Estimate("predicted_seconds", record.predicted_seconds);
    fields.Estimate("predicted_span_bubble", record.predicted_span_bubble, 1);
    fields.Estimate("predicted_wall_bubble", record.predicted_wall_bubble, 1);
    if (fields.Has("planned_for_seconds"))
      fields.SecondsMap("planned_for_seconds", record.planned_for_seconds);
    fields.Below("pipeline_rank", record.pipeline_rank, "pipeline_size",
                 record.pipeline_size);
    fields.Below("replica", record.replica, "replicas", record.replicas);
  } else if constexpr (std::is_same_v<T, MemoryRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("peak_host_bytes", record.peak_host_bytes);
    fields.Count("peak_device_bytes", record.peak_device_bytes);
    if (fields.Has("measured")) {  // implies the other field of 1.7
      fields.Object("measured", record.measured);
      fields.Object("computed", record.computed);
    }
  } else if constexpr (std::is_same_v<T, MemoryParts>) {
    fields.Count("parameter_bytes", record.parameter_bytes);
    fields.Count("gradient_bytes", record.gradient_bytes);
    fields.Count("optimizer_bytes", record.optimizer_bytes);
    fields.Count("unsharded_bytes", record.unsharded_bytes);
    fields.Count("activation_bytes", record.activation_bytes);
  } else if constexpr (std::is_same_v<T, RecordedSpan>) {
    fields.Text("action", record.action);
    fields.Count("stage", record.stage);
    fields.Count("micro_batch", record.micro_batch);
    fields.Seconds("start_seconds", record.start_seconds);
    fields.Seconds("end_seconds", record.end_seconds);
    fields.Check(!(record.end_seconds < record.start_seconds),
                 "\"end_seconds\" is before \"start_seconds\"");
  } else if constexpr (std::is_same_v<T, TimelineRecord>) {
    fields.Count("rank", record.rank);
    if (fields.Has("pipeline_rank"))
      fields.Count("pipeline_rank", record.pipeline_rank);
    fields.Count("step", record.step);
    fields.Text("schedule", record.schedule);
    fields.Choice("origin", record.origin, {"measured", "simulated"});
    fields.Objects("spans", record.spans);
  } else if constexpr (std::is_same_v<T, CollectiveRecord>) {
    ListCollectiveFields(fields, record);
    CheckCollective(fields, record);
  } else if constexpr (std::is_same_v<T, OverlapRecord>) {
    ListOverlapFields(fields, record);
  } else if constexpr (std::is_same_v<T, RecordedTransfer>) {
    ListTrafficEventFields(fields, record);
  } else if constexpr (std::is_same_v<T, TrafficRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("step", record.step);
    fields.Objects("events", record.events);
    fields.Seconds("step_seconds", record.step_seconds);
    fields.Seconds("exposed_comm_seconds", record.exposed_comm_seconds);
  } else if constexpr (std::is_same_v<T, LayerRecord>) {
    fields.Count("rank", record.rank);
    fields.Count("layer", record.layer);
    fields.Text("name", record.name);
    fields.Count("examples", record.examples);
    fields.Number("forward_flops", record.forward_flops);
    fields.Number("backward_flops", record.backward_flops);
    fields.Number("forward_bytes", record.forward_bytes);
    fields.Number("backward_bytes", record.backward_bytes);
    fields.SecondsList("forward_seconds", record.forward_seconds);
    fields.SecondsList("backward_seconds", record.backward_seconds);
    fields.Check(
        record.forward_seconds.size() == record.backward_seconds.size(),
        "\"forward_seconds\" and \"backward_seconds\" differ in length");
    fields.Check(
        IsAmount(record.forward_flops) && IsAmount(record.backward_flops) &&
            IsAmount(record.forward_bytes) && IsAmount(record.backward_bytes),
        "operations and bytes should be 0 or more");
  } else {
    static_assert(std::is_same_v<T, EnvironmentRecord>);
    fields.Count("rank", record.rank);
    fields.Text("topology", record.topology);
    fields.CountList("cpus", record.cpus);
    fields.TextMap("variables", record.variables);
  }
}

// The name of a record kind in a file, and the minor version of schema 1 that
// added it.
struct RecordKind {
  const char* name;
  int since_minor;
};

// In the order of Record's alternatives.
inline constexpr RecordKind kRecordKinds[] = {
    {"run", 0},         {"step", 0},       {"epoch", 0},
    {"eval", 0},        {"checkpoint", 0}, {"schedule", 1},
    {"collective", 2},  {"overlap", 2},    {"traffic", 2},
    {"environment", 2}, {"memory", 3},     {"timeline", 3},
    {"restart", 9},     {"update", 10},    {"layer", 11},
    {"divergence", 12},
};
static_assert(std::size(kRecordKinds) == std::variant_size_v<Record>);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RECORD_FIELDS_H_
