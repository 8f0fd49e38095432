#include "trainers/loop/sharded_model.h"

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/recompute.h"

namespace rankwise {
namespace {

// Adds a layer's parameters that no earlier unit has, as one unit or several.
void AddUnits(const Model& model, size_t layer, bool one,
              std::set<std::string>& seen, std::vector<UnitSpec>& units) {
  std::vector<UnitSpec> added;
  for (const auto& [name, parameter] : model.ParametersOf(layer)) {
    if (!seen.insert(name).second) continue;
    const std::string unit =
        one ? model.LayerName(layer) : name.substr(0, name.rfind('.'));
    if (added.empty() || added.back().name != unit) added.push_back({unit, {}});
    added.back().parameters.push_back(parameter);
  }
  for (UnitSpec& unit : added) units.push_back(std::move(unit));
}

int64_t BytesOf(const UnitSpec& unit) {
  int64_t bytes = 0;
  for (const torch::Tensor& parameter : unit.parameters)
    bytes += static_cast<int64_t>(parameter.nbytes());
  return bytes;
}

// Joins consecutive units until they have `bytes` bytes.
std::vector<UnitSpec> Joined(std::vector<UnitSpec> units, double bytes) {
  std::vector<UnitSpec> joined;
  for (UnitSpec& unit : units) {
    if (joined.empty() ||
        static_cast<double>(BytesOf(joined.back())) >= bytes) {
      joined.push_back(std::move(unit));
      continue;
    }
    absl::StrAppend(&joined.back().name, "+", unit.name);
    for (torch::Tensor& parameter : unit.parameters)
      joined.back().parameters.push_back(std::move(parameter));
  }
  return joined;
}

std::vector<UnitSpec> UnitsOf(const Model& model, const std::string& text) {
  std::set<std::string> seen;
  std::vector<UnitSpec> units;
  for (size_t layer = 0; layer < model.num_layers(); ++layer)
    AddUnits(model, layer, /*one=*/text != "layer", seen, units);
  const std::optional<double> mebibytes = UnitMebibytes(text);
  return mebibytes.has_value()
             ? Joined(std::move(units), *mebibytes * (1 << 20))
             : units;
}

absl::StatusOr<ShardingGroups> GroupsOf(const Worker& worker, int shard_ranks) {
  const Group& line = worker.mesh->group("dp");
  if (worker.size("cp") > 1)
    return ShardingGroups{line, worker.mesh->group("cp")};
  auto groups = DivideLine(line, shard_ranks == 0 ? line.size() : shard_ranks);
  if (groups.ok()) return groups;
  return absl::Status(groups.status().code(),
                      absl::StrCat("--shard_ranks=", shard_ranks, ": ",
                                   groups.status().message()));
}

std::vector<torch::Tensor> TensorsOf(
    const std::vector<std::pair<std::string, torch::Tensor>>& named) {
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

Sharding ShardingOf(const ZeroConfig& zero, const Worker& worker) {
  return {.config = zero.sharding,
          .units = zero.units,
          .ranks = zero.shard_ranks == 0 ? worker.dp_size() : zero.shard_ranks,
          .recompute = zero.recompute};
}

absl::StatusOr<std::unique_ptr<FullyShardedDataParallel>> ShardModel(
    Model& model, const TrainConfig& config, const Worker& worker,
    const ZeroConfig& zero) {
  ASSIGN_OR_RETURN(const ShardingGroups groups,
                   GroupsOf(worker, zero.shard_ranks));
  ASSIGN_OR_RETURN(std::unique_ptr<FullyShardedDataParallel> engine,
                   FullyShardedDataParallel::Create(
                       model, UnitsOf(model, zero.units),
                       worker.mesh->group("dp"), groups, zero.sharding));
  const size_t layers = model.num_layers();
  for (size_t layer = 0; layer < layers; ++layer)
    engine->AddSection(TensorsOf(model.ParametersOf(layer)));
  std::vector<std::vector<torch::Tensor>> buffers;
  for (size_t layer = 0; layer < layers; ++layer)
    buffers.push_back(model.BuffersOf(layer));
  model.SetRunLayer(
      [engine = engine.get(), recompute = zero.recompute, layers,
       precision = config.precision, buffers = std::move(buffers)](
          size_t layer, const Model::LayerForward& forward,
          const torch::Tensor& x) {
        // Backward begins with the last layer, which needs no recomputing.
        if (!recompute || layer + 1 == layers)
          return engine->Run(layer, forward, x);
        return engine->Run(
            layer,
            [&](const torch::Tensor& input) {
              return Recomputed(forward, input, precision, buffers[layer]);
            },
            x);
      },
      /*collective=*/true);
  return engine;
}

ShardedState StateOf(const FullyShardedDataParallel& engine) {
  ShardedState state;
  state.group = engine.groups().shard;
  for (const auto& unit : engine.units()) {
    for (const ShardedParameter& parameter : unit->parameters()) {
      state.shards[parameter.name] = {.rows = parameter.rows,
                                      .begin = parameter.begin,
                                      .whole_rows = parameter.whole.size(0)};
    }
  }
  return state;
}

std::function<void(StepRecord&)> RecordUnitWaits(
    FullyShardedDataParallel& engine) {
  // Functions must be copyable; these waits are not.
  const auto waits =
      std::make_shared<std::vector<UnitWaits>>(engine.TakeUnitWaits());
  return [waits](StepRecord& record) {
    for (UnitWaits& unit : *waits) {
      record.units.push_back({unit.unit, unit.all_gather.Wait(),
                              unit.reduce_scatter.Wait(),
                              unit.prefetch_misses});
      const double seconds = record.units.back().all_gather_seconds +
                             record.units.back().reduce_scatter_seconds;
      record.exposed_comm_seconds += seconds;
      record.exposed_by_axis_seconds["dp"] += seconds;
    }
  };
}

}  // namespace rankwise
