#include "parallel/pipeline/engine/stage_streams.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "c10/core/CachingDeviceAllocator.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "parallel/device/device_event.h"

namespace rankwise {
namespace {

// Returns, by stage, the first stage that it shares parameters with, directly
// or through other stages, or the stage itself.
std::vector<size_t> FirstRelatives(const std::vector<Stage*>& stages) {
  std::vector<size_t> first(stages.size());
  std::iota(first.begin(), first.end(), 0);
  std::map<const c10::TensorImpl*, size_t> users;  // first stage with it
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] == nullptr) continue;
    for (const at::Tensor& parameter : stages[i]->Parameters()) {
      const size_t user =
          users.emplace(parameter.unsafeGetTensorImpl(), i).first->second;
      const size_t from = std::max(first[i], first[user]);
      const size_t to = std::min(first[i], first[user]);
      std::replace(first.begin(), first.end(), from, to);
    }
  }
  return first;
}

}  // namespace

void RecordUse(const at::Tensor& tensor, const c10::Stream& stream) {
  if (!tensor.defined() || tensor.device().is_cpu()) return;
  c10::getDeviceAllocator(tensor.device().type())
      ->recordStream(tensor.storage().data_ptr(), stream);
}

StageStreams::StageStreams(const std::vector<Stage*>& stages,
                           std::vector<c10::Device> devices)
    : devices_(std::move(devices)), of_stage_(stages.size()) {
  const std::vector<size_t> relatives = FirstRelatives(stages);
  for (size_t i = 0; i < stages.size(); ++i) {
    const c10::Device device = devices_[i];
    if (stages[i] == nullptr || device.is_cpu()) continue;
    const auto [arrivals, is_first] = arrivals_.try_emplace(device);
    if (is_first) arrivals->second.push_back(Add(device));
    // Related stages share their streams, one per device of any of them.
    std::vector<c10::Stream>& streams = of_stage_[relatives[i]];
    const bool is_new = std::none_of(
        streams.begin(), streams.end(),
        [&](const c10::Stream& stream) { return stream.device() == device; });
    if (is_new) streams.push_back(Add(device));
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] != nullptr) of_stage_[i] = of_stage_[relatives[i]];
  }
}

c10::Stream StageStreams::HomeOf(size_t stage) const {
  for (const c10::Stream& stream : of_stage_[stage]) {
    if (stream.device() == devices_[stage]) return stream;
  }
  return c10::Stream(c10::Stream::DEFAULT, devices_[stage]);  // a CPU
}

const std::vector<c10::Stream>& StageStreams::Arrivals(
    c10::Device device) const {
  static const auto* const kNone = new std::vector<c10::Stream>;
  const auto found = arrivals_.find(device);
  return found == arrivals_.end() ? *kNone : found->second;
}

c10::Stream StageStreams::Add(c10::Device device) {
  all_.push_back(c10::impl::VirtualGuardImpl(device.type())
                     .getStreamFromGlobalPool(device));
  return all_.back();
}

void StageStreams::Begin() const {
  for (const auto& [device, arrivals] : arrivals_) {
    const DeviceEvent given(device);
    for (const c10::Stream& stream : all_) given.Block(stream);
  }
}

void StageStreams::End() const {
  for (const c10::Stream& stream : all_) {
    const DeviceEvent done(stream);
    for (const auto& [device, arrivals] : arrivals_)
      done.Block(CurrentStream(device));
  }
}

}  // namespace rankwise
