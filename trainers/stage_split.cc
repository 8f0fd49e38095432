#include "trainers/stage_split.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "parallel/pipeline/partition.h"

namespace rankwise {
namespace {

std::vector<LayerRange> ToRanges(const Cuts& cuts, size_t num_layers) {
  std::vector<LayerRange> ranges;
  size_t begin = 0;
  for (size_t cut : cuts) {
    ranges.push_back({begin, cut});
    begin = cut;
  }
  ranges.push_back({begin, num_layers});
  return ranges;
}

absl::Status AboutSplit(const std::string& split, const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrCat("--split=", split, ": ", std::string(status.message())));
}

double Cost(const LayerSpec& layer, const std::string& split) {
  if (split == "parameters") return static_cast<double>(layer.parameters);
  return split == "flops" ? layer.flops : 1;
}

}  // namespace

absl::StatusOr<MeshLayout> LayOutPipelines(const PipelineConfig& config,
                                           int world_size) {
  const int ranks = config.ranks > 0
                        ? config.ranks
                        : std::max(1, world_size / config.replicas);
  return MeshLayout::Create({{"dp", config.replicas}, {"pp", ranks}},
                            world_size);
}

absl::StatusOr<std::vector<LayerRange>> SplitByFacts(const ModelSpec& model,
                                                     const std::string& split,
                                                     int num_stages) {
  const size_t stages = static_cast<size_t>(num_stages);
  absl::StatusOr<Cuts> cuts;
  if (split == "layers" || split == "parameters" || split == "flops") {
    std::vector<double> costs;
    for (const LayerSpec& layer : model.layers)
      costs.push_back(Cost(layer, split));
    cuts = BalanceLayers(costs, stages);
  } else if (!split.empty() &&
             absl::ascii_isalpha(static_cast<unsigned char>(split[0]))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--split=", split,
        ": must be layers, parameters, flops, time, or cuts such as 2,5"));
  } else {
    cuts = ParseCuts(split, model.layers.size(), stages);
  }
  if (!cuts.ok()) return AboutSplit(split, cuts.status());
  return ToRanges(*cuts, model.layers.size());
}

absl::StatusOr<std::vector<LayerRange>> SplitByCosts(
    absl::Span<const double> layer_costs, int num_stages) {
  absl::StatusOr<Cuts> cuts =
      BalanceLayers(layer_costs, static_cast<size_t>(num_stages));
  if (!cuts.ok()) return AboutSplit("time", cuts.status());
  return ToRanges(*cuts, layer_costs.size());
}

}  // namespace rankwise
