#include "parallel/sharded/order/unit_bytes.h"

#include <algorithm>
#include <utility>

namespace rankwise {
namespace {

constexpr int64_t kReducedBytes = 4;

}  // namespace

int64_t UnitBytes::MessageBytes(size_t unit) const {
  return config_.ranks == 1
             ? 0
             : config_.parameter_bytes * units_[unit].padded_numbers;
}

int64_t UnitBytes::WholeBytes(size_t unit) const {
  return config_.zero < 3 ? 0 : config_.parameter_bytes * units_[unit].numbers;
}

bool UnitBytes::Gathered(size_t unit) const {
  return states_[unit].at != At::kSharded;
}

void UnitBytes::StartGather(size_t unit) {
  states_[unit].at = At::kGathering;
  bytes_.Add(MessageBytes(unit));
}

void UnitBytes::FinishGather(size_t unit) {
  if (states_[unit].at != At::kGathering) return;
  states_[unit].at = At::kWhole;
  bytes_.Add(WholeBytes(unit));
  bytes_.Add(-MessageBytes(unit));
}

void UnitBytes::Invalidate(size_t unit) {
  FinishGather(unit);
  if (std::exchange(states_[unit].at, At::kSharded) == At::kWhole)
    bytes_.Add(-WholeBytes(unit));
}

void UnitBytes::AddGradients(size_t unit, size_t section, int64_t numbers) {
  State& state = states_[unit];
  const auto end = state.sections.end();
  if (config_.zero == 1 ||
      std::find(state.sections.begin(), end, section) != end)
    return;
  state.sections.push_back(section);
  state.gradients += numbers;
  bytes_.Add(config_.parameter_bytes * numbers);
}

void UnitBytes::StartReduce(size_t unit) {
  State& state = states_[unit];
  bytes_.Add(kReducedBytes * units_[unit].padded_numbers);
  bytes_.Add(-config_.parameter_bytes * std::exchange(state.gradients, 0));
  state.sections.clear();
}

void UnitBytes::FinishReduce(size_t unit) {
  bytes_.Add(-kReducedBytes * units_[unit].padded_numbers);
}

}  // namespace rankwise
