#include "analysis/runs/made_layouts_for_test.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "records/record.h"
#include "records/record_writer.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kRanks = 4;
constexpr int64_t kSlowRank = 2;
constexpr int64_t kSteps = 60;  // warm-up included
constexpr int64_t kMicroBatches = 8;
constexpr int64_t kStrongBatch = 64;
constexpr double kNoise = 0.01;
constexpr double kRunFactors[] = {0.99, 0.995, 1, 1.005, 1.01};

constexpr double kComputeSeconds = 2e-3;  // per example
constexpr double kGradientBytes = 5e7;
constexpr double kStateBytes = 4 * kGradientBytes;  // with Adam's two moments
constexpr double kActivationBytes = 1e6;            // per example
// per example and step, of tensor parallelism
constexpr double kTensorBytes = 2e6;
constexpr double kMessageBytes = 2e5;  // per example, between stages

struct MadeLayout {
  std::string trainer;  // the binary
  std::string axis;     // axis of the communication; "" without any
  int zero = 0;
  int64_t ranks = kRanks;
  double fixed_bytes = 0;  // per rank and step
  // per rank and step, per example of the global batch
  double bytes_per_example = 0;
  double state_shards = 1;  // ranks that share the state

  bool IsPipeline() const { return axis == "pp"; }
  double StateBytes() const { return kStateBytes / state_shards; }
};

std::vector<MadeLayout> Layouts() {
  // A ring's all-reduce moves 2 (N - 1) / N of the gradients; ZeRO-3 gathers
  // the parameters twice and reduce-scatters the gradients.
  const double pass = (kRanks - 1.0) / kRanks * kGradientBytes;
  return {{"single", "", 0, 1},
          {"ddp", "dp", 0, kRanks, 2 * pass},
          {"fsdp", "dp", 3, kRanks, 3 * pass, 0, kRanks},
          {"tensor_parallel", "tp", 0, kRanks, 0, kTensorBytes, kRanks},
          {"pipeline", "pp", 0, kRanks, 0, kMessageBytes, kRanks}};
}

std::string TrainerName(const MadeLayout& layout) {
  if (layout.zero > 0)
    return absl::StrCat(layout.trainer, " zero", layout.zero);
  return layout.IsPipeline() ? layout.trainer + " 1f1b" : layout.trainer;
}

// A cell: a layout with its batch.
struct MadeJob {
  MadeLayout layout;
  int64_t global_batch = kStrongBatch;
  double compute_seconds = 0;  // of each rank
  double bubble_seconds = 0;
  double comm_seconds = 0;

  double StepSeconds(double slower) const {
    return (1 + slower) * (compute_seconds + bubble_seconds) + comm_seconds;
  }
};

MadeJob JobOf(const MadeLayout& layout, const LayoutStudyConfig& config) {
  MadeJob job{.layout = layout};
  if (config.memory_bytes > 0) {
    const double room =
        static_cast<double>(config.memory_bytes) - layout.StateBytes();
    job.global_batch = layout.ranks * kMicroBatches *
                       static_cast<int64_t>(room / kActivationBytes /
                                            static_cast<double>(kMicroBatches));
  }
  const double examples = static_cast<double>(job.global_batch);
  job.compute_seconds =
      kComputeSeconds * examples / static_cast<double>(layout.ranks);
  job.comm_seconds =
      (layout.fixed_bytes + layout.bytes_per_example * examples) /
      config.link_bytes_per_second;
  if (layout.IsPipeline()) {  // (p - 1) / m of the work
    job.bubble_seconds = job.compute_seconds * (kRanks - 1.0) / kMicroBatches;
  }
  return job;
}

RunRecord RunOf(const MadeJob& job, int64_t launch, int64_t rank) {
  const MadeLayout& layout = job.layout;
  const bool divides_batch = layout.axis == "dp" || layout.ranks == 1;
  RunRecord run;
  run.run_id = absl::StrCat("20260131-120000-", layout.trainer, "-", launch);
  run.binary = layout.trainer;
  run.flags = {{"batch_size", absl::StrCat(job.global_batch /
                                           (divides_batch ? layout.ranks : 1))},
               {"model", "gpt"},
               {"threads", "1"}};
  if (layout.zero > 0) run.flags["zero"] = absl::StrCat(layout.zero);
  if (layout.IsPipeline()) {
    run.flags["batch_size"] = absl::StrCat(job.global_batch / kMicroBatches);
    run.flags["schedule"] = "1f1b";
    run.flags["pp"] = absl::StrCat(layout.ranks);
    run.flags["microbatches"] = absl::StrCat(kMicroBatches);
  }
  SetConfigHashes(&run);
  run.rank = rank;
  run.world_size = layout.ranks;
  if (layout.ranks > 1) {
    run.backend = "gloo";
    run.mesh = {{layout.axis, layout.ranks}};
  }
  run.host = {"made", "A made CPU", kRanks, int64_t{1} << 34};
  run.devices = {"cpu"};
  run.source_hash = "made";
  return run;
}

// Returns a rank's step that computes for `own` seconds and waits for the
// slowest rank, which computes for `slowest`.
StepRecord StepOf(const MadeJob& job, int64_t rank, int64_t number, double own,
                  double slowest) {
  const MadeLayout& layout = job.layout;
  const double waits = slowest - own + job.comm_seconds;
  StepRecord step;
  step.rank = rank;
  step.step = number;
  step.epoch = 1;
  step.loss = 2.3;
  step.examples =
      layout.axis == "dp" ? job.global_batch / layout.ranks : job.global_batch;
  step.forward_seconds = own / 3;
  step.backward_seconds = own - step.forward_seconds + waits;
  if (layout.axis == "dp" || layout.axis == "tp") {
    step.exposed_comm_seconds = waits;
    step.exposed_by_axis_seconds = {{layout.axis, waits}};
  }
  if (layout.IsPipeline()) step.backward_seconds += job.bubble_seconds;
  step.step_seconds = step.forward_seconds + step.backward_seconds;
  return step;
}

ScheduleRecord ScheduleOf(const MadeJob& job, const StepRecord& step,
                          double own) {
  ScheduleRecord record;
  record.rank = record.pipeline_rank = step.rank;
  record.step = step.step;
  record.schedule = "1f1b";
  record.pipeline_size = record.stages = kRanks;
  record.micro_batches = kMicroBatches;
  record.schedule_seconds = record.span_seconds = step.step_seconds;
  record.busy_seconds = own;
  record.wait_seconds = step.step_seconds - own;
  record.exposed_transfer_seconds = job.comm_seconds;
  record.transfer_seconds = job.comm_seconds;
  record.sent_bytes = record.received_bytes = static_cast<int64_t>(
      kMessageBytes * static_cast<double>(job.global_batch));
  record.peak_activations = kRanks - step.rank;
  record.predicted_seconds = step.step_seconds;
  record.predicted_wall_bubble = record.predicted_span_bubble =
      record.wait_seconds / step.step_seconds;
  return record;
}

int64_t PeakBytes(const MadeJob& job) {
  return static_cast<int64_t>(job.layout.StateBytes() +
                              kActivationBytes *
                                  static_cast<double>(job.global_batch) /
                                  static_cast<double>(job.layout.ranks));
}

absl::Status WriteRun(const std::string& dir, const LayoutStudyConfig& config,
                      MadeJob job, int64_t launch, std::mt19937_64& random) {
  std::normal_distribution<double> noise(1, kNoise);
  for (double* seconds :
       {&job.compute_seconds, &job.bubble_seconds, &job.comm_seconds}) {
    *seconds *= kRunFactors[launch];
  }
  ASSIGN_OR_RETURN(const auto writer,
                   RecordWriter::Open(absl::StrCat(
                       dir, "/", job.layout.trainer, job.layout.zero, "-x",
                       job.layout.ranks, "-", launch, ".jsonl")));
  absl::Status status;
  for (int64_t rank = 0; rank < job.layout.ranks; ++rank) {
    status.Update(writer->Write(RunOf(job, launch, rank)));
  }
  for (int64_t number = 1; number <= kSteps; ++number) {
    std::vector<double> own;
    for (int64_t rank = 0; rank < job.layout.ranks; ++rank) {
      const bool slow = rank == kSlowRank;
      own.push_back(job.compute_seconds * noise(random) *
                    (slow ? 1 + config.slower : 1));
    }
    const double slowest = *std::max_element(own.begin(), own.end());
    for (int64_t rank = 0; rank < job.layout.ranks; ++rank) {
      const StepRecord step = StepOf(job, rank, number, own[rank], slowest);
      if (job.layout.IsPipeline()) {
        status.Update(writer->Write(ScheduleOf(job, step, own[rank])));
      }
      status.Update(writer->Write(std::vector<StepRecord>{step}));
    }
  }
  for (int64_t rank = 0; rank < job.layout.ranks; ++rank) {
    status.Update(writer->Write(MemoryRecord{rank, PeakBytes(job), 0}));
  }
  status.Update(writer->Close());
  return status;
}

}  // namespace

absl::StatusOr<std::map<std::string, double>> WriteLayoutStudy(
    const std::string& dir, const LayoutStudyConfig& config) {
  std::mt19937_64 random(config.seed);
  std::map<std::string, double> rates;
  for (const MadeLayout& layout : Layouts()) {
    // Ranks of a pipeline with a slow stage wait unequally.
    if (config.slower > 0 && layout.IsPipeline()) continue;
    const MadeJob job = JobOf(layout, config);
    for (int64_t launch = 0; launch < std::ssize(kRunFactors); ++launch) {
      RETURN_IF_ERROR(WriteRun(dir, config, job, launch, random));
    }
    const double slower = layout.ranks > 1 ? config.slower : 0;
    rates[TrainerName(layout)] =
        static_cast<double>(job.global_batch) / job.StepSeconds(slower);
  }
  return rates;
}

}  // namespace rankwise
