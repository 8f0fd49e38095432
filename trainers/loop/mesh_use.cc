#include "trainers/loop/mesh_use.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "trainers/loop/step_bytes.h"

namespace rankwise {
namespace {

// Returns "pp and dp cross nodes of 4 ranks" or "on one node".
std::string DescribeNodes(const Worker& worker) {
  if (worker.env.local_world_size == worker.env.world_size)
    return "on one node";
  std::vector<std::string> crossing;
  for (const MeshAxis& axis : worker.layout.axes()) {
    if (worker.layout.CrossesHosts(axis.name)) crossing.push_back(axis.name);
  }
  return absl::StrCat(absl::StrJoin(crossing, " and "),
                      crossing.size() == 1 ? " crosses" : " cross",
                      " nodes of ", worker.env.local_world_size, " ranks");
}

// Returns the weights that another rank along pp or tp counts in the norm.
std::vector<std::string> CountedElsewhere(const Worker& worker,
                                          const Model& model) {
  std::vector<std::string> names;
  for (const TiedWeight& copy : model.copies()) names.push_back(copy.copy_name);
  if (worker.coordinate("tp") == 0) return names;
  for (const auto& entry : model.named_parameters()) {
    if (model.divisions().count(entry.key()) == 0) names.push_back(entry.key());
  }
  return names;
}

}  // namespace

ModelParallel ParallelOf(const Worker& worker, const ModelSplit& split,
                         ExposedComm* tensor_exposed,
                         ExposedComm* context_exposed) {
  if (worker.mesh == nullptr) return {};
  return {.tensor = {.group = worker.mesh->group("tp"),
                     .sequence_parallel = split.sequence,
                     .overlap_pieces = split.overlap_pieces,
                     .exposed = tensor_exposed},
          .context = {.group = worker.mesh->group("cp"),
                      .method = split.method,
                      .exposed = context_exposed}};
}

void ReduceNormAcross(const Worker& worker, const Model& model,
                      const Group& shard, Optimizer& optimizer) {
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups;
  if (shard.size() > 1) groups.push_back(shard.process_group());
  for (const char* axis : {"tp", "pp"}) {
    if (worker.size(axis) > 1)
      groups.push_back(worker.mesh->group(axis).process_group());
  }
  if (groups.empty()) return;
  const c10::Device device = worker.device;
  optimizer.ReduceNormAcross(
      [groups, device](torch::Tensor& squared_norm) {
        std::vector<torch::Tensor> sum = {squared_norm.to(device)};
        for (const auto& group : groups) group->allreduce(sum)->wait();
        squared_norm.copy_(sum[0]);
      },
      CountedElsewhere(worker, model));
}

std::string DescribeMesh(const Worker& worker) {
  const auto& axes = worker.layout.axes();
  const auto used = absl::c_count_if(
      axes, [](const MeshAxis& axis) { return axis.size > 1; });
  if (used < 2 && !worker.layout.CrossesHosts("tp")) return "";
  const std::string sizes =
      absl::StrJoin(axes, ", ", [](std::string* out, const MeshAxis& axis) {
        absl::StrAppend(out, axis.name, " ", axis.size);
      });
  return absl::StrCat("mesh: ", sizes, " (ranks along ", axes.back().name,
                      " are neighbours), ", DescribeNodes(worker));
}

std::string WarnOfTensorAcrossNodes(const TrainConfig& config,
                                    const Worker& worker,
                                    const ModelSpec& model) {
  if (!worker.layout.CrossesHosts("tp")) return "";
  double numbers = 0;
  for (const LayerSpec& layer : model.layers)
    numbers += layer.exchanged_along_tp;
  const double examples =
      static_cast<double>(config.data.batch_size * config.accumulate);
  const double bytes_each = ValueBytes(config.precision);
  return absl::StrFormat(
      "warning: tp crosses nodes: its ranks sum %.3g MB of activations a step "
      "between them; give --tp at most %d, the ranks of a node, or tp as the "
      "last axis of --mesh_order",
      numbers * examples * bytes_each / worker.size("pp") * 1e-6,
      worker.env.local_world_size);
}

}  // namespace rankwise
