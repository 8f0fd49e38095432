#include "parallel/device/device_event.h"

#include <algorithm>
#include <iterator>

#include "c10/core/Event.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "c10/util/Exception.h"

namespace rankwise {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

c10::Stream CurrentStream(c10::Device device) {
  if (device.is_cpu()) return c10::Stream(c10::Stream::DEFAULT, device);
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

DeviceEvent::DeviceEvent(c10::Device device)
    : DeviceEvent(CurrentStream(device)) {}

DeviceEvent::DeviceEvent(const c10::Stream& stream)
    : device_(stream.device()), given_(Clock::now()) {
  if (device_.is_cpu()) return;
  event_ = std::make_unique<c10::Event>(device_.type(),
                                        c10::EventFlag::BACKEND_DEFAULT);
  event_->record(stream);
}

DeviceEvent::~DeviceEvent() = default;
DeviceEvent::DeviceEvent(DeviceEvent&&) noexcept = default;
DeviceEvent& DeviceEvent::operator=(DeviceEvent&&) noexcept = default;

bool DeviceEvent::reached() const {
  return event_ == nullptr || event_->query();
}

void DeviceEvent::Wait() const {
  if (event_ != nullptr) event_->synchronize();
}

void DeviceEvent::Block(const c10::Stream& stream) const {
  if (event_ != nullptr) event_->block(stream);
}

std::optional<double> SecondsBetween(const DeviceEvent& from,
                                     const DeviceEvent& to) {
  TORCH_CHECK(from.device_ == to.device_, "events of ", from.device_, " and ",
              to.device_, " are on different clocks");
  if (from.event_ == nullptr) return Seconds(to.given_ - from.given_);
  // CUDA does not specify the elapsed time from an event to an earlier one.
  if (to.given_ < from.given_) {
    const std::optional<double> backwards = SecondsBetween(to, from);
    return backwards.has_value() ? std::optional<double>(-*backwards)
                                 : std::nullopt;
  }
  if (!from.reached() || !to.reached()) return std::nullopt;
  constexpr double kSecondsPerMillisecond = 1e-3;
  return from.event_->elapsedTime(*to.event_) * kSecondsPerMillisecond;
}

double WaitForSecondsBetween(const DeviceEvent& from, const DeviceEvent& to) {
  from.Wait();
  to.Wait();
  return *SecondsBetween(from, to);
}

void SynchronizeDevice(c10::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(device.has_index() ? device.index()
                                             : guard.getDevice().index());
}

PendingDuration::PendingDuration(DeviceEvent from, DeviceEvent to) {
  stretches_.emplace_back(std::move(from), std::move(to));
}

PendingDuration& PendingDuration::operator+=(PendingDuration other) {
  known_ += other.known_;
  std::move(other.stretches_.begin(), other.stretches_.end(),
            std::back_inserter(stretches_));
  return *this;
}

bool PendingDuration::reached() const {
  return std::all_of(stretches_.begin(), stretches_.end(),
                     [](const std::pair<DeviceEvent, DeviceEvent>& stretch) {
                       return stretch.first.reached() &&
                              stretch.second.reached();
                     });
}

double PendingDuration::Wait() const {
  double seconds = known_;
  for (const auto& [from, to] : stretches_)
    seconds += WaitForSecondsBetween(from, to);
  return seconds;
}

HostAnchor::HostAnchor(c10::Device device) : moment_(device) {
  moment_.Wait();
  const Clock::time_point now =
      device.is_cpu() ? moment_.given() : Clock::now();
  host_seconds_ = Seconds(now.time_since_epoch());
}

std::optional<double> HostAnchor::HostSeconds(const DeviceEvent& moment) const {
  const std::optional<double> since = SecondsBetween(moment_, moment);
  if (!since.has_value()) return std::nullopt;
  return host_seconds_ + *since;
}

}  // namespace rankwise
