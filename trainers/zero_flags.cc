#include "trainers/zero_flags.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/loop/recompute.h"

TRAINER_FLAG(kSpeed, int, zero, 3,
             "what data-parallel ranks divide among them: 1 the optimizer's "
             "state, 2 the gradients too, 3 the parameters too");
TRAINER_FLAG(kSpeed, std::string, units, "block",
             "parameters that are gathered together: block (one of the model's "
             "layers, such as a transformer's block), layer (each Linear, "
             "LayerNorm, ... in it), or a number of MiB (blocks in a row)");
TRAINER_FLAG(kSpeed, int, prefetch, 1,
             "units that are gathered ahead of the one that computes");
TRAINER_FLAG(
    kLayout, int, shard_ranks, 0,
    "ranks among which one copy of the state is divided, such as those "
    "of a node; the copies are replicas (HSDP). 0: all");
TRAINER_FLAG(kLosses, std::string, param_dtype, "",
             "fp32 or bf16, in which parameters are gathered and used; the "
             "optimizer's and the sum of gradients stay fp32. Default: that of "
             "--precision");
TRAINER_FLAG(
    kSpeed, bool, reduce_every_microbatch, false,
    "with --accumulate, --zero=2 or 3: reduce the gradients of each "
    "micro-batch, so that no rank keeps whole ones, and not their sum");
TRAINER_FLAG(kSpeed, bool, offload_optimizer, false,
             "on a GPU: the optimizer's state, and the update, on the host");

ABSL_DECLARE_FLAG(int64_t, accumulate);
ABSL_DECLARE_FLAG(int64_t, check_divergence_every);
ABSL_DECLARE_FLAG(std::string, device);
ABSL_DECLARE_FLAG(std::string, precision);
ABSL_DECLARE_FLAG(bool, recompute);
ABSL_DECLARE_FLAG(bool, skip_communication);

namespace rankwise {
namespace {

constexpr int kMostPrefetched = 1 << 10;
constexpr int kMostRanks = 1 << 20;

// Of --units; none unless it is a number.
std::optional<double> MebibytesPerUnit() {
  double mebibytes = 0;
  if (!absl::SimpleAtod(absl::GetFlag(FLAGS_units), &mebibytes))
    return std::nullopt;
  return mebibytes;
}

bool GathersBf16() {
  const std::string type = absl::GetFlag(FLAGS_param_dtype);
  return (type.empty() ? absl::GetFlag(FLAGS_precision) : type) == "bf16";
}

ShardingConfig ShardingFromFlags() {
  ShardingConfig config;
  config.stage = absl::GetFlag(FLAGS_zero);
  config.prefetch = absl::GetFlag(FLAGS_prefetch);
  if (GathersBf16()) config.parameter_type = at::kBFloat16;
  config.reduce_every_micro_batch =
      absl::GetFlag(FLAGS_reduce_every_microbatch);
  config.offload = absl::GetFlag(FLAGS_offload_optimizer);
  return config;
}

void CheckCombinations(FlagChecks& checks) {
  if (absl::GetFlag(FLAGS_param_dtype) == "bf16" &&
      absl::GetFlag(FLAGS_precision) != "bf16") {
    checks.Complain("--param_dtype=bf16: needs --precision=bf16");
  }
  if (absl::GetFlag(FLAGS_reduce_every_microbatch) &&
      (absl::GetFlag(FLAGS_zero) == 1 ||
       absl::GetFlag(FLAGS_accumulate) == 1)) {
    checks.Complain(
        "--reduce_every_microbatch: needs --zero=2 or 3, and --accumulate "
        "above 1");
  }
  if (absl::GetFlag(FLAGS_offload_optimizer) &&
      absl::GetFlag(FLAGS_device) == "cpu") {
    checks.Complain(
        "--offload_optimizer: needs a GPU, and --device=cpu asks for none");
  }
  const int64_t every = absl::GetFlag(FLAGS_check_divergence_every);
  if (every != 0) {
    checks.Complain(absl::StrCat("--check_divergence_every=", every,
                                 ": sharded ranks have no replicas to compare; "
                                 "leave it out, or train with ddp"));
  }
  if (absl::GetFlag(FLAGS_skip_communication)) {
    checks.Complain(
        "--skip_communication: sharded ranks cannot go on without each other's "
        "parameters; only ddp, pipeline and model_parallel can");
  }
}

// A layer's parameters that no earlier unit has, one unit or several.
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

// Neighbours together until they have that many bytes.
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

std::vector<UnitSpec> UnitsFromFlag(const Model& model) {
  std::set<std::string> seen;
  std::vector<UnitSpec> units;
  const bool one = absl::GetFlag(FLAGS_units) != "layer";
  for (size_t layer = 0; layer < model.num_layers(); ++layer)
    AddUnits(model, layer, one, seen, units);
  const std::optional<double> mebibytes = MebibytesPerUnit();
  return mebibytes.has_value()
             ? Joined(std::move(units), *mebibytes * (1 << 20))
             : units;
}

std::vector<torch::Tensor> TensorsOf(
    const std::vector<std::pair<std::string, torch::Tensor>>& named) {
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

absl::Status CheckFsdpFlags() {
  FlagChecks checks;
  FlagInRange(checks, FLAGS_zero, 1, 3);
  FlagInRange(checks, FLAGS_prefetch, 0, kMostPrefetched);
  FlagInRange(checks, FLAGS_shard_ranks, 0, kMostRanks);
  checks.OneOf("param_dtype", absl::GetFlag(FLAGS_param_dtype),
               {"", "fp32", "bf16"});
  const std::string units = absl::GetFlag(FLAGS_units);
  const double mebibytes = MebibytesPerUnit().value_or(1);
  if ((units != "block" && units != "layer" && !MebibytesPerUnit()) ||
      !(mebibytes > 0 && mebibytes <= 1 << 20)) {
    checks.Complain(absl::StrCat("--units=", units,
                                 ": must be block, layer, or a number of MiB "
                                 "above 0 and at most 1048576"));
  }
  CheckCombinations(checks);
  return checks.status();
}

absl::StatusOr<std::unique_ptr<FullyShardedDataParallel>> ShardModel(
    Model& model, const TrainConfig& config, const Worker& worker) {
  const Group& line = worker.mesh->group("dp");
  const int flag = absl::GetFlag(FLAGS_shard_ranks);
  auto groups = DivideLine(line, flag == 0 ? line.size() : flag);
  if (!groups.ok()) {
    return absl::Status(
        groups.status().code(),
        absl::StrCat("--shard_ranks=", flag, ": ", groups.status().message()));
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<FullyShardedDataParallel> engine,
      FullyShardedDataParallel::Create(model, UnitsFromFlag(model), line,
                                       *groups, ShardingFromFlags()));
  const size_t layers = model.num_layers();
  for (size_t layer = 0; layer < layers; ++layer)
    engine->AddSection(TensorsOf(model.ParametersOf(layer)));
  const bool recompute = absl::GetFlag(FLAGS_recompute);
  model.SetRunLayer(
      [engine = engine.get(), recompute, layers, precision = config.precision](
          size_t layer, const Model::LayerForward& forward,
          const torch::Tensor& x) {
        // Backward begins with the last layer: it can use what is there.
        if (!recompute || layer + 1 == layers)
          return engine->Run(layer, forward, x);
        return engine->Run(
            layer,
            [&](const torch::Tensor& input) {
              return Recomputed(forward, input, precision);
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

StepOutcome OutcomeOf(const torch::Tensor& loss,
                      FullyShardedDataParallel& engine) {
  auto waits = std::make_shared<std::vector<UnitWaits>>(engine.TakeUnitWaits());
  StepOutcome outcome{.loss = loss};
  outcome.complete = [waits](StepRecord& record) {
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
  return outcome;
}

}  // namespace rankwise
