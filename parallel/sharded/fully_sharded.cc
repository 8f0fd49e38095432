#include "parallel/sharded/fully_sharded.h"

#include <algorithm>
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
      new FullyShardedDataParallel(module, groups, line, config));
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
                                                   const ShardingConfig& config)
    : module_(module), groups_(groups), line_(line), config_(config) {
  unsharded_.has_gradients = config.stage > 1;
}

void FullyShardedDataParallel::AddUnit(
    const UnitSpec& spec, const std::map<const void*, std::string>& names) {
  std::vector<NamedTensor> parameters;
  for (const torch::Tensor& parameter : spec.parameters) {
    parameters.push_back({names.at(KeyOf(parameter)), parameter});
    unit_of_[KeyOf(parameter)] = units_.size();
  }
  units_.push_back(std::make_unique<ShardedUnit>(spec.name, parameters, groups_,
                                                 config_, unsharded_));
  uses_.emplace_back();
  WatchGradients(units_.size() - 1);
}

void FullyShardedDataParallel::WatchGradients(size_t unit) {
  const auto& parameters = units_[unit]->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].trained()) continue;
    const auto accumulator =
        torch::autograd::impl::grad_accumulator(parameters[i].whole);
    accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, unit, i](const torch::autograd::variable_list& outputs,
                            const torch::autograd::variable_list&) {
              GradientIsThere(unit, i);
              return outputs;
            }));
    uses_[unit].accumulators.push_back(accumulator);  // which hold the hook
  }
}

void FullyShardedDataParallel::AddSection(
    const std::vector<torch::Tensor>& parameters) {
  const size_t section = sections_.size();
  std::vector<size_t> added;
  for (const torch::Tensor& parameter : parameters) {
    const size_t unit = unit_of_.at(KeyOf(parameter));
    if (absl::c_linear_search(added, unit)) continue;
    const bool is_first = absl::c_none_of(sections_, [&](const auto& earlier) {
      return absl::c_linear_search(earlier, unit);
    });
    if (is_first) uses_[unit].first_section = section;
    uses_[unit].last_section = section;
    added.push_back(unit);
  }
  sections_.push_back(std::move(added));
}

void FullyShardedDataParallel::Gather(size_t unit) {
  units_[unit]->StartGather();
  if (config_.stage < 3) return;
  const auto gathered = static_cast<int>(absl::c_count_if(
      units_, [](const auto& each) { return each->gathered(); }));
  peak_gathered_units_ = std::max(peak_gathered_units_, gathered);
}

void FullyShardedDataParallel::Need(size_t unit) {
  if (!units_[unit]->gathered()) {
    ++uses_[unit].misses;
    Gather(unit);
  }
  units_[unit]->FinishGather();
}

void FullyShardedDataParallel::Prefetch(size_t section, int step) {
  const auto begin =
      step > 0 ? &UnitUse::first_section : &UnitUse::last_section;
  const auto end = static_cast<int64_t>(sections_.size());
  int started = 0;
  for (auto next = static_cast<int64_t>(section) + step;
       next >= 0 && next < end; next += step) {
    for (size_t unit : sections_[static_cast<size_t>(next)]) {
      if (started == config_.prefetch) return;
      if (uses_[unit].*begin != static_cast<size_t>(next)) continue;
      if (!units_[unit]->gathered()) Gather(unit);
      ++started;
    }
  }
}

torch::Tensor FullyShardedDataParallel::Run(size_t section,
                                            const Forward& forward,
                                            const torch::Tensor& x) {
  for (size_t unit : sections_[section]) Need(unit);
  Prefetch(section, 1);
  torch::Tensor y = forward(x);
  if (config_.stage < 3) return y;
  const bool trains = y.requires_grad();
  const bool backward_begins_here = trains && section + 1 == sections_.size() &&
                                    !config_.micro_batches_take_turns;
  for (size_t unit : sections_[section]) {
    if (uses_[unit].last_section == section && !backward_begins_here)
      units_[unit]->Invalidate(/*free=*/true);
  }
  if (trains) {
    y.register_hook(
        [this, section](const torch::Tensor&) { BackwardReaches(section); });
  }
  return y;
}

std::vector<std::pair<std::string, torch::Tensor>>
FullyShardedDataParallel::Owned() const {
  std::vector<std::pair<std::string, torch::Tensor>> owned;
  for (const auto& unit : units_) {
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
       units_[unit_of_.at(KeyOf(parameter))]->parameters()) {
    if (each.whole.is_same(parameter)) return each.rows;
  }
  return {};
}

void FullyShardedDataParallel::BeforeForward() {
  step_syncs_ = sync_;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    uses_[unit].to_start = units_[unit]->trained();
  if (!buffers_stale_) return;
  // Between Create and the first step the rows may have been restored.
  if (std::exchange(is_first_step_, false)) {
    for (const auto& unit : units_) unit->Invalidate(config_.stage == 3);
  }
  BroadcastFromFirst(ModelBuffers(module_), line_);
  // The optimizer has used them.
  for (const auto& unit : units_) unit->DropGradients();
  buffers_stale_ = false;
}

void FullyShardedDataParallel::BeforeBackward(
    const std::vector<torch::Tensor>&) {
  for (size_t unit = 0; unit < units_.size(); ++unit)
    uses_[unit].awaited = units_[unit]->trained();
}

void FullyShardedDataParallel::BackwardReaches(size_t section) {
  for (size_t unit : sections_[section]) {
    Need(unit);
    const bool begins = uses_[unit].last_section == section;
    if (begins && config_.micro_batches_take_turns)
      uses_[unit].awaited = units_[unit]->trained();
  }
  Prefetch(section, -1);
}

void FullyShardedDataParallel::GradientIsThere(size_t unit, size_t parameter) {
  units_[unit]->CountGradient(units_[unit]->parameters()[parameter]);
  if (--uses_[unit].awaited == 0) FinishUnit(unit);
}

void FullyShardedDataParallel::FinishUnit(size_t unit) {
  if (config_.stage == 3) units_[unit]->Invalidate(/*free=*/true);
  if (reduces()) Reduce(unit);
}

void FullyShardedDataParallel::Reduce(size_t unit) {
  // No more whole gradients are in flight than whole parameters.
  while (static_cast<int>(reducing_.size()) > config_.prefetch) {
    units_[reducing_.front()]->FinishReduce();
    reducing_.pop_front();
  }
  units_[unit]->StartReduce();
  reducing_.push_back(unit);
}

void FullyShardedDataParallel::AfterBackward() {
  // Some gradients never came: of parameters that the loss does not depend on.
  for (size_t unit = units_.size(); unit-- > 0;) {
    if (uses_[unit].awaited > 0) FinishUnit(unit);
    uses_[unit].awaited = 0;
    if (config_.stage == 3) units_[unit]->Invalidate(/*free=*/true);
  }
  FinishReduces();
}

void FullyShardedDataParallel::FinishReduces() {
  for (size_t unit : reducing_) units_[unit]->FinishReduce();
  reducing_.clear();
  buffers_stale_ = step_syncs_;
  if (!step_syncs_) return;
  // An update follows. ZeRO 3 may have gathered units ahead that nothing used,
  // as in a pipeline whose last action runs a stage's forward again.
  for (const auto& unit : units_) unit->Invalidate(/*free=*/config_.stage == 3);
}

void FullyShardedDataParallel::Start(
    const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    const size_t unit = unit_of_.at(KeyOf(parameter));
    if (--uses_[unit].to_start == 0) Reduce(unit);
  }
}

PendingDuration FullyShardedDataParallel::Finish() {
  FinishReduces();
  return 0;
}

PendingDuration FullyShardedDataParallel::TakeExposedComm() {
  PendingDuration sum;
  for (const auto& unit : units_) {
    sum += unit->TakeGatherWait();
    sum += unit->TakeReduceWait();
  }
  return sum;
}

std::vector<UnitWaits> FullyShardedDataParallel::TakeUnitWaits() {
  std::vector<UnitWaits> waits;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    waits.push_back({units_[unit]->name(), units_[unit]->TakeGatherWait(),
                     units_[unit]->TakeReduceWait(),
                     std::exchange(uses_[unit].misses, 0)});
  }
  return waits;
}

}  // namespace rankwise
