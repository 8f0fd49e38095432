#include "trainers/loop/run_description.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/run_record.h"
#include "records/run_origin.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/mesh_use.h"

namespace rankwise {
namespace {

constexpr int64_t kSmallBatchForBatchNorm = 8;

}  // namespace

ExampleUnit UnitOf(const ModelSpec& model) {
  const std::vector<int64_t>& output = model.layers.back().output_shape;
  if (model.num_classes > 0 && output.size() == 2)
    return {"sequence", output[0]};
  return {model.example_shape.size() == 3 ? "image" : "", 0};
}

absl::StatusOr<RunRecord> DescribeTrainer(const TrainConfig& config,
                                          const Worker& worker,
                                          const ModelSpec& spec) {
  RunningRank rank{
      .binary = worker.trainer,
      .flags = config.flags.all,
      .env = worker.env,
      .devices = worker.devices,
      .threads = worker.threads,
      .comm = worker.comm == nullptr ? nullptr : &worker.comm->job()};
  if (rank.devices.empty()) rank.devices = {worker.device};
  ASSIGN_OR_RETURN(RunRecord record, DescribeRun(rank));
  record.scaling_hash = HashFlags(config.flags.scaling);
  record.forward_flops_per_example = spec.flops();
  record.peak_flops_per_second = config.output.peak.flops_per_second;
  record.peak_bytes_per_second = config.output.peak.bytes_per_second;
  const ExampleUnit unit = UnitOf(spec);
  record.example = unit.example;
  record.tokens_per_example = unit.tokens_per_example;
  if (worker.readers > 0) return record;  // the ranks do not form a mesh
  for (const MeshAxis& axis : worker.layout.axes())
    record.mesh.push_back({axis.name, axis.size});
  return record;
}

std::string DescribeRank(const Worker& worker) {
  const std::string text = absl::StrCat(worker.device.str(), ", ",
                                        Counted(worker.threads, "thread"));
  return worker.comm == nullptr
             ? text
             : absl::StrCat(text, ", ", std::string(worker.comm->backend()));
}

// Backward costs as much as two forwards: one for the gradients of the inputs,
// one for those of the weights.
double TrainingFlops(const ModelSpec& spec, const Worker& worker,
                     int replicas) {
  std::set<std::string> devices;
  for (const c10::Device& device : worker.devices) devices.insert(device.str());
  const size_t here = std::max<size_t>(
      1, replicas > 1 ? static_cast<size_t>(replicas) : devices.size());
  return 3 * spec.flops() /
         static_cast<double>(here *
                             static_cast<size_t>(worker.ranks_per_copy()));
}

std::vector<std::string> DescribeTraining(const TrainConfig& config,
                                          const Worker& worker,
                                          const ModelSpec& spec,
                                          const TrainingLength& length) {
  std::vector<std::string> lines = {absl::StrFormat(
      "%s: %s (%d parameters, %.4g forward FLOPs per example) on %s, %d "
      "training examples; batch %d per rank and micro-batch, %d global; %s, "
      "learning rate %g, %s%s, seed %d; %d steps",
      worker.trainer, spec.name, spec.parameters(), spec.flops(),
      length.dataset, length.dataset_size, config.data.batch_size,
      length.global_batch, config.optimizer.name,
      config.optimizer.learning_rate, PrecisionName(config.precision),
      config.tf32 ? " with TF32" : "", config.seed, length.steps)};
  for (const std::string& line :
       {DescribeMesh(worker), WarnOfTensorAcrossNodes(config, worker, spec)}) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::string WarnOfSmallBatchNorm(const TrainConfig& config,
                                 const Model& model) {
  if (config.data.batch_size >= kSmallBatchForBatchNorm || !HasBatchNorm(model))
    return "";
  return absl::StrCat("warning: --batch_size=", config.data.batch_size,
                      " with batch norm: statistics over fewer than ",
                      kSmallBatchForBatchNorm,
                      " examples are noise; use a larger batch");
}

std::string DescribeNothingLeft(const std::string& why,
                                const TrainConfig& config, int64_t steps) {
  return absl::StrCat(why, ": nothing is left to do: the run ends after step ",
                      steps, " (--epochs=", config.epochs,
                      config.max_steps > 0
                          ? absl::StrCat(", --max_steps=", config.max_steps)
                          : "",
                      "); increase these to train further");
}

}  // namespace rankwise
