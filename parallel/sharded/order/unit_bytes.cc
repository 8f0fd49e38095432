#include "parallel/sharded/order/unit_bytes.h"

#include <algorithm>
#include <utility>

namespace rankwise {
namespace {

constexpr int64_t kSumBytes = 4;  // of fp32

}  // namespace

UnitSize SizeOf(const std::vector<std::vector<int64_t>>& shapes,
                int64_t ranks) {
  UnitSize size;
  for (const std::vector<int64_t>& shape : shapes) {
    int64_t row = 1;
    for (size_t i = 1; i < shape.size(); ++i) row *= shape[i];
    size.numbers += shape[0] * row;
    size.padded_numbers += (shape[0] + ranks - 1) / ranks * ranks * row;
  }
  return size;
}

double BytesHeld(const DividedTensors& tensors, const UnitSize& size, int zero,
                 int64_t ranks) {
  const bool divided = zero >= tensors.divided_from;
  // Otherwise the rows are views of the full tensors.
  const bool has_rows = divided || tensors.in_bf16 || tensors.rows_apart;
  const double whole_bytes = tensors.in_bf16 ? 2 : tensors.row_bytes;
  const auto rows = static_cast<double>(size.padded_numbers / ranks);
  return (divided ? 0 : whole_bytes * static_cast<double>(size.numbers)) +
         (has_rows ? tensors.row_bytes * rows : 0);
}

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
  if (config_.zero == 1) return;
  std::vector<Gradients>& all = states_[unit].gradients;
  auto own = std::find_if(all.begin(), all.end(), [&](const Gradients& each) {
    return each.section == section;
  });
  const bool first = own == all.end();
  if (first) own = all.insert(own, {section});
  const int64_t bytes = numbers * (first ? config_.parameter_bytes : kSumBytes);
  bytes_.Add(bytes - std::exchange(own->bytes, bytes));
}

void UnitBytes::StartReduce(size_t unit) {
  bytes_.Add(kSumBytes * units_[unit].padded_numbers);
  std::vector<Gradients>& all = states_[unit].gradients;
  for (const Gradients& each : all) bytes_.Add(-each.bytes);
  all.clear();
}

void UnitBytes::FinishReduce(size_t unit) {
  bytes_.Add(-kSumBytes * units_[unit].padded_numbers);
}

}  // namespace rankwise
