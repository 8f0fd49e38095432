#include "trainers/job.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "records/record.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flag_rules.h"
#include "trainers/loop/training_data.h"
#include "trainers/memory/computed_memory.h"
#include "trainers/models/model.h"
#include "trainers/observe/step_trace.h"
#include "trainers/resume/run_checkpoints.h"

namespace rankwise {
namespace {

constexpr int64_t MemoryParts::*kParts[] = {
    &MemoryParts::parameter_bytes, &MemoryParts::gradient_bytes,
    &MemoryParts::optimizer_bytes, &MemoryParts::unsharded_bytes,
    &MemoryParts::activation_bytes};

bool Same(const MemoryParts& a, const MemoryParts& b) {
  for (const auto part : kParts) {
    if (a.*part != b.*part) return false;
  }
  return true;
}

// Computes the same parts as TrainingRun does on the rank.
absl::StatusOr<MemoryParts> PartsOf(const Job& job, const Worker& worker) {
  TrainConfig config = job.config;
  config.model.split.context_place = worker.coordinate("cp");
  ASSIGN_OR_RETURN(const ModelSpec model, MakeModelSpec(config.model));
  ModelPlacement placement;
  if (job.parallelism.stages.has_value()) {
    PipelineConfig stages = *job.parallelism.stages;
    if (stages.split == "time") stages.split = "flops";
    ASSIGN_OR_RETURN(std::unique_ptr<PipelinePlan> plan,
                     PipelinePlan::Create(config, worker, stages));
    placement = plan->Placement();
  } else {
    if (!worker.devices.empty())
      placement.replicas = static_cast<int>(worker.devices.size());
    placement.sharding = ShardingOf(job.parallelism.zero, worker);
  }
  return ComputeMemory(config, worker.device.type(), model, placement);
}

// Formats ascending ranks: "0-3", "0, 2".
std::string RankList(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1)
      ++last;
    absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]);
    if (last > i) absl::StrAppend(&text, "-", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string Row(const std::vector<int>& ranks, const MemoryParts& parts) {
  std::string row = "\n";
  int64_t sum = 0;
  for (const auto part : kParts) {
    sum += parts.*part;
    absl::StrAppendFormat(&row, "%13.3f",
                          1e-6 * static_cast<double>(parts.*part));
  }
  absl::StrAppendFormat(&row, "%13.3f  %s", 1e-6 * static_cast<double>(sum),
                        RankList(ranks));
  return row;
}

// Divides --global_batch_size among the data-parallel ranks, if it is set.
absl::Status SetBatchSize(Job& job) {
  const int64_t examples = job.config.data.global_batch_size;
  if (examples == 0) return absl::OkStatus();
  const int ranks = job.layout.size("dp") - job.parallelism.servers;
  const int64_t micro_batches = job.config.accumulate;
  if (examples % (ranks * micro_batches) != 0) {
    return Bad("--global_batch_size=", examples, ": is not a multiple of ",
               ranks, " data-parallel ranks x ", micro_batches,
               " micro-batches");
  }
  int64_t& batch_size = job.config.data.batch_size;
  batch_size = examples / (ranks * micro_batches);
  FlagValues& flags = job.config.flags;
  flags.all["batch_size"] = flags.losses["batch_size"] =
      absl::StrCat(batch_size);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> PlanJob(const Trainer& trainer, const TrainConfig& config,
                            int world_size) {
  Job job;
  job.world_size = world_size;
  job.config = config;
  if (trainer.divide != nullptr) {
    ASSIGN_OR_RETURN(job.parallelism, trainer.divide(world_size));
  }
  // A pipeline accumulates over its micro-batches.
  if (job.parallelism.stages.has_value())
    job.config.accumulate = job.parallelism.stages->micro_batches;
  std::vector<MeshAxis> axes = job.parallelism.axes;
  if (axes.empty()) axes = {{"dp", world_size}};
  ASSIGN_OR_RETURN(job.layout, LayOutRanks(axes, world_size));
  const int servers = job.parallelism.servers;
  if (servers >= world_size) {
    return Bad("--servers=", servers, ": leaves no worker of ",
               Counted(world_size, "rank"), "; give --nproc=", servers + 1,
               " or more");
  }
  job.config.model.split = job.parallelism.split;
  RETURN_IF_ERROR(SetBatchSize(job));
  return job;
}

absl::Status CheckJob(const Trainer& trainer, const Job& job) {
  Worker worker;
  worker.trainer = trainer.name;
  worker.env.world_size = job.world_size;
  worker.layout = job.layout;
  if (job.parallelism.servers > 0)
    worker.readers = job.world_size - job.parallelism.servers;
  TrainConfig config = job.config;
  config.data.workers = 0;
  ASSIGN_OR_RETURN(const ModelSpec model, MakeModelSpec(config.model));
  ASSIGN_OR_RETURN(const TrainingData data,
                   OpenTrainingData(config, model, worker));
  const int64_t steps = TotalSteps(config, *data.train.loader);
  return config.checkpoint.resume
             ? CheckResume(config, steps, worker)
             : StepTrace::Check(config.output.trace, steps);
}

absl::StatusOr<std::string> MemoryTable(const Job& job,
                                        c10::DeviceType device) {
  Worker worker;
  worker.env.world_size = job.world_size;
  worker.layout = job.layout;
  worker.devices = job.parallelism.devices;
  worker.device =
      worker.devices.empty() ? c10::Device(device) : worker.devices.front();
  // A rank's memory depends only on its stage and its tokens.
  std::map<std::pair<int, int>, MemoryParts> by_place;
  std::vector<std::pair<MemoryParts, std::vector<int>>> rows;
  for (int& rank = worker.env.rank; rank < job.world_size; ++rank) {
    const std::pair place(worker.coordinate("pp"), worker.coordinate("cp"));
    if (by_place.count(place) == 0) {
      ASSIGN_OR_RETURN(by_place[place], PartsOf(job, worker));
    }
    size_t row = 0;
    while (row < rows.size() && !Same(rows[row].first, by_place[place])) ++row;
    if (row == rows.size()) rows.push_back({by_place[place], {}});
    rows[row].second.push_back(rank);
  }
  std::string table = absl::StrFormat(
      "memory of each rank in MB, computed (docs/memory.md)\n%13s%13s%13s%13s"
      "%13s%13s  %s",
      "parameters", "gradients", "optimizer", "unsharded", "activations", "sum",
      "ranks");
  for (const auto& [parts, ranks] : rows) table += Row(ranks, parts);
  return table;
}

}  // namespace rankwise
