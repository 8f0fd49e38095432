#include "parallel/sharded/fully_sharded.h"

#include <exception>

#include "ATen/core/grad_mode.h"
#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/model_state.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/utils/lambda_post_hook.h"
#include "torch/csrc/autograd/variable.h"
#include "torch/nn/module.h"

namespace rankwise {
namespace {

const void* KeyOf(const torch::Tensor& parameter) {
  return parameter.unsafeGetTensorImpl();
}

// Calls a function before a node of autograd's graph runs.
class PreHook : public torch::autograd::FunctionPreHook {
 public:
  explicit PreHook(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    call_();
    return gradients;
  }

 private:
  const std::function<void()> call_;
};

absl::Status CheckParameters(const std::vector<NamedTensor>& parameters,
                             const std::vector<UnitSpec>& units) {
  std::map<const void*, int> counts;
  for (const UnitSpec& unit : units) {
    for (const torch::Tensor& parameter : unit.parameters)
      ++counts[KeyOf(parameter)];
  }
  for (const NamedTensor& parameter : parameters) {
    if (parameter.sparse_gradient && parameter.tensor.requires_grad()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the parameter ", parameter.name,
          " has sparse gradients, which cannot be reduce-scattered; make its "
          "embedding dense"));
    }
    const int count = counts[KeyOf(parameter.tensor)];
    if (count == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the parameter ", parameter.name,
        count == 0 ? " belongs to no unit" : " belongs to several units",
        "; every parameter belongs to one"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FullyShardedDataParallel>>
FullyShardedDataParallel::Create(torch::nn::Module& module,
                                 const std::vector<UnitSpec>& units,
                                 const Group& line,
                                 const ShardingGroups& groups,
                                 const ShardingConfig& config) {
  const std::vector<NamedTensor> parameters = ModelParameters(module);
  RETURN_IF_ERROR(CheckParameters(parameters, units));
  try {
    RETURN_IF_ERROR(VerifyModel(module, line));
    BroadcastFromFirst(parameters, line);
    BroadcastFromFirst(ModelBuffers(module), line);
  } catch (const std::exception& error) {
    if (line.communicator() == nullptr) throw;
    return line.communicator()->ExplainFailure(
        "setting up FullyShardedDataParallel", error);
  }
  std::unique_ptr<FullyShardedDataParallel> engine(
      new FullyShardedDataParallel(module, groups, line, config, units.size()));
  std::map<const void*, std::string> names;
  for (const NamedTensor& parameter : parameters)
    names[KeyOf(parameter.tensor)] = parameter.name;
  for (const UnitSpec& unit : units) engine->AddUnit(unit, names);
  if (!engine->Owned().empty() || line.size() > 1) return engine;
  return absl::InvalidArgumentError(
      "FullyShardedDataParallel has nothing to do: the model has no parameter "
      "that requires a gradient");
}

FullyShardedDataParallel::FullyShardedDataParallel(torch::nn::Module& module,
                                                   const ShardingGroups& groups,
                                                   const Group& line,
                                                   const ShardingConfig& config,
                                                   size_t num_units)
    : module_(module),
      groups_(groups),
      line_(line),
      config_(config),
      units_(config.stage),
      order_(units_, num_units,
             {.zero = config.stage,
              .prefetch = config.prefetch,
              .interleave_micro_batches = config.interleave_micro_batches}) {
  unsharded_.has_gradients = config.stage > 1;
}

void FullyShardedDataParallel::AddUnit(
    const UnitSpec& spec, const std::map<const void*, std::string>& names) {
  std::vector<NamedTensor> parameters;
  for (const torch::Tensor& parameter : spec.parameters) {
    parameters.push_back({names.at(KeyOf(parameter)), parameter});
    unit_of_[KeyOf(parameter)] = units().size();
  }
  units_.Add(std::make_unique<ShardedUnit>(spec.name, parameters, groups_,
                                           config_, unsharded_));
  gradients_.emplace_back();
}

void FullyShardedDataParallel::WatchGradients(size_t unit) {
  const auto& parameters = units_[unit].parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].trained()) continue;
    const auto accumulator =
        torch::autograd::impl::grad_accumulator(parameters[i].whole);
    accumulator->add_pre_hook(std::make_unique<PreHook>([this, unit, i] {
      units_[unit].WidenGradient(units_[unit].parameters()[i]);
    }));
    accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, unit, i](const torch::autograd::variable_list& outputs,
                            const torch::autograd::variable_list&) {
              OnGradientReady(unit, i);
              return outputs;
            }));
    gradients_[unit].accumulators.push_back(accumulator);  // owns the hooks
  }
}

void FullyShardedDataParallel::AddSection(
    const std::vector<torch::Tensor>& parameters) {
  std::vector<size_t> units;
  for (const torch::Tensor& parameter : parameters) {
    const size_t unit = unit_of_.at(KeyOf(parameter));
    if (!absl::c_linear_search(units, unit)) units.push_back(unit);
  }
  order_.AddSection(std::move(units));
}

torch::Tensor FullyShardedDataParallel::Run(size_t section,
                                            const Forward& forward,
                                            const torch::Tensor& x) {
  // As late as possible: autograd accumulates gradients on the stream that is
  // current when accumulators are created; in a pipeline, the stage's.
  for (const size_t unit : order_.units_of(section)) {
    if (gradients_[unit].accumulators.empty()) WatchGradients(unit);
  }
  order_.BeginForward(section);
  torch::Tensor y = forward(x);
  order_.EndForward(section, /*trains=*/y.requires_grad());
  if (config_.stage == 3 && y.requires_grad()) {
    y.register_hook(
        [this, section](const torch::Tensor&) { OnBackwardReached(section); });
  }
  return y;
}

std::vector<std::pair<std::string, torch::Tensor>>
FullyShardedDataParallel::Owned() const {
  std::vector<std::pair<std::string, torch::Tensor>> owned;
  for (const auto& unit : units()) {
    for (const ShardedParameter& parameter : unit->parameters()) {
      if (parameter.trained() && parameter.rows.size(0) > 0)
        owned.emplace_back(parameter.name, parameter.rows);
    }
  }
  return owned;
}

torch::Tensor FullyShardedDataParallel::RowsOf(
    const torch::Tensor& parameter) const {
  for (const ShardedParameter& each :
       units_[unit_of_.at(KeyOf(parameter))].parameters()) {
    if (each.whole.is_same(parameter)) return each.rows;
  }
  return {};
}

void FullyShardedDataParallel::BeforeForward() {
  step_syncs_ = sync_;
  for (size_t unit = 0; unit < gradients_.size(); ++unit)
    gradients_[unit].to_start = units_[unit].trained();
  if (!buffers_stale_) return;
  // A checkpoint may have been restored between Create and the first step.
  if (std::exchange(is_first_step_, false)) order_.InvalidateAll();
  BroadcastFromFirst(ModelBuffers(module_), line_);
  // The optimizer has consumed them.
  for (const auto& unit : units()) unit->DropGradients();
  buffers_stale_ = false;
}

void FullyShardedDataParallel::BeforeBackward(
    const std::vector<torch::Tensor>&) {
  for (size_t unit = 0; unit < gradients_.size(); ++unit)
    gradients_[unit].awaited = units_[unit].trained();
}

void FullyShardedDataParallel::OnBackwardReached(size_t section) {
  if (config_.interleave_micro_batches) {
    for (const size_t unit : order_.units_of(section)) {
      if (order_.last_section(unit) == section)
        gradients_[unit].awaited = units_[unit].trained();
    }
  }
  order_.BeginBackward(section);
}

void FullyShardedDataParallel::OnGradientReady(size_t unit, size_t parameter) {
  units_[unit].CountGradient(units_[unit].parameters()[parameter]);
  if (--gradients_[unit].awaited == 0) order_.FinishUnit(unit, reduces());
}

void FullyShardedDataParallel::AfterBackward() {
  // Parameters that the loss does not depend on received no gradient.
  for (size_t unit = gradients_.size(); unit-- > 0;) {
    if (std::exchange(gradients_[unit].awaited, 0) > 0)
      order_.FinishUnit(unit, reduces());
  }
  order_.EndBackward();
  FinishReduces();
}

void FullyShardedDataParallel::FinishReduces() {
  // EndStep also discards units that ZeRO 3 prefetched but nothing used, as in
  // a pipeline whose last action repeats a stage's forward.
  order_.EndStep(/*updates=*/step_syncs_);
  // The first unit's gradients usually arrive last: the host blocks once.
  if (step_syncs_) {
    for (const auto& unit : units()) unit->AwaitHostCopies();
  }
  buffers_stale_ = step_syncs_;
}

void FullyShardedDataParallel::Start(
    const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    const size_t unit = unit_of_.at(KeyOf(parameter));
    if (--gradients_[unit].to_start == 0) order_.Reduce(unit);
  }
}

PendingDuration FullyShardedDataParallel::Finish() {
  FinishReduces();
  return 0;
}

PendingDuration FullyShardedDataParallel::TakeExposedComm() {
  PendingDuration sum;
  for (const auto& unit : units()) {
    sum += unit->TakeGatherWait();
    sum += unit->TakeReduceWait();
  }
  return sum;
}

std::vector<UnitWaits> FullyShardedDataParallel::TakeUnitWaits() {
  std::vector<UnitWaits> waits;
  for (size_t unit = 0; unit < units().size(); ++unit) {
    waits.push_back({units_[unit].name(), units_[unit].TakeGatherWait(),
                     units_[unit].TakeReduceWait(), order_.TakeMisses(unit)});
  }
  return waits;
}

}  // namespace rankwise
