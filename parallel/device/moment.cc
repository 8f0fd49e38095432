#include "parallel/device/moment.h"

#include "c10/core/Event.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "c10/util/Exception.h"

namespace rankwise {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

c10::Stream CurrentStream(c10::Device device) {
  if (device.is_cpu()) return c10::Stream(c10::Stream::DEFAULT, device);
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

Moment::Moment(c10::Device device) : Moment(CurrentStream(device)) {}

Moment::Moment(const c10::Stream& stream)
    : device_(stream.device()), given_(Clock::now()) {
  if (device_.is_cpu()) return;
  event_ = std::make_unique<c10::Event>(device_.type(),
                                        c10::EventFlag::BACKEND_DEFAULT);
  event_->record(stream);
}

Moment::~Moment() = default;
Moment::Moment(Moment&&) noexcept = default;
Moment& Moment::operator=(Moment&&) noexcept = default;

bool Moment::reached() const { return event_ == nullptr || event_->query(); }

void Moment::Wait() const {
  if (event_ != nullptr) event_->synchronize();
}

void Moment::Block(const c10::Stream& stream) const {
  if (event_ != nullptr) event_->block(stream);
}

std::optional<double> SecondsBetween(const Moment& from, const Moment& to) {
  TORCH_CHECK(from.device_ == to.device_, "moments of ", from.device_, " and ",
              to.device_, " are on two clocks");
  if (from.event_ == nullptr) return Seconds(to.given_ - from.given_);
  // CUDA promises nothing for an end before its start.
  if (to.given_ < from.given_) {
    const std::optional<double> backwards = SecondsBetween(to, from);
    return backwards.has_value() ? std::optional<double>(-*backwards)
                                 : std::nullopt;
  }
  if (!from.reached() || !to.reached()) return std::nullopt;
  constexpr double kSecondsPerMillisecond = 1e-3;
  return from.event_->elapsedTime(*to.event_) * kSecondsPerMillisecond;
}

double WaitForSecondsBetween(const Moment& from, const Moment& to) {
  from.Wait();
  to.Wait();
  return *SecondsBetween(from, to);
}

HostAnchor::HostAnchor(c10::Device device) : moment_(device) {
  moment_.Wait();
  const Clock::time_point now =
      device.is_cpu() ? moment_.given() : Clock::now();
  host_seconds_ = Seconds(now.time_since_epoch());
}

std::optional<double> HostAnchor::HostSeconds(const Moment& moment) const {
  const std::optional<double> since = SecondsBetween(moment_, moment);
  if (!since.has_value()) return std::nullopt;
  return host_seconds_ + *since;
}

}  // namespace rankwise
