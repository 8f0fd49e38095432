#include "trainers/dry_run.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "records/record.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/computed_memory.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/stages/pipeline_plan.h"

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

// As TrainingRun computes it on the rank.
absl::StatusOr<MemoryParts> PartsOf(const Trainer& trainer, TrainConfig config,
                                    const Worker& worker) {
  if (trainer.split != nullptr)
    config.model.split = trainer.split(worker.env.world_size);
  config.model.split.context_place = worker.coordinate("cp");
  ASSIGN_OR_RETURN(const ModelSpec model, MakeModelSpec(config.model));
  ModelPlacement placement;
  if (trainer.stages != nullptr) {
    PipelineConfig stages = trainer.stages(config);
    if (stages.split == "time") stages.split = "flops";
    ASSIGN_OR_RETURN(std::unique_ptr<PipelinePlan> plan,
                     PipelinePlan::Create(config, worker, stages));
    placement = plan->Placement();
  }
  if (trainer.stages == nullptr && !worker.devices.empty())
    placement.replicas = static_cast<int>(worker.devices.size());
  if (trainer.zero != nullptr)
    placement.sharding = ShardingOf(trainer.zero(), worker);
  return ComputeMemory(config, worker.device.type(), model, placement);
}

// "0-3", "0, 2" of ascending ranks.
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

}  // namespace

absl::StatusOr<std::string> MemoryTable(const Trainer& trainer,
                                        const TrainConfig& config,
                                        int world_size,
                                        c10::DeviceType device) {
  Worker worker;
  worker.env.world_size = world_size;
  worker.device = device;
  std::vector<MeshAxis> axes = {{"dp", world_size}};
  if (trainer.axes != nullptr) axes = trainer.axes(world_size);
  ASSIGN_OR_RETURN(worker.layout, LayOutRanks(axes, world_size));
  if (trainer.devices != nullptr) {
    ASSIGN_OR_RETURN(worker.devices, trainer.devices(world_size));
    if (!worker.devices.empty()) worker.device = worker.devices.front();
  }
  // What ranks hold depends on their stage and on their tokens alone.
  std::map<std::pair<int, int>, MemoryParts> by_place;
  std::vector<std::pair<MemoryParts, std::vector<int>>> rows;
  for (int& rank = worker.env.rank; rank < world_size; ++rank) {
    const std::pair place(worker.coordinate("pp"), worker.coordinate("cp"));
    if (by_place.count(place) == 0) {
      ASSIGN_OR_RETURN(by_place[place], PartsOf(trainer, config, worker));
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
