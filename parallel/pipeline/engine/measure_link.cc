#include "parallel/pipeline/engine/measure_link.h"

#include <algorithm>

#include "ATen/ops/zeros.h"
#include "parallel/comm/group.h"
#include "parallel/device/device_event.h"
#include "parallel/pipeline/engine/transport.h"
#include "parallel/pipeline/simulation/timeline.h"

namespace rankwise {
namespace {

constexpr int64_t kSmallBytes = 4;
constexpr int64_t kMaxLargeBytes = int64_t{4} << 20;
constexpr int kWarmupTrips = 2;  // or copies, as below
constexpr int kSmallTrips = 20, kLargeTrips = 7, kCopies = 7;

double Median(std::vector<double> seconds) {
  const auto median = seconds.begin() + seconds.size() / 2;
  std::nth_element(seconds.begin(), median, seconds.end());
  return *median;
}

at::Tensor Message(int64_t bytes, c10::Device device) {
  return at::zeros({bytes}, at::TensorOptions(at::kByte).device(device));
}

void Pass(GroupTransport& transport, int peer, bool is_send,
          const at::Tensor& tensor) {
  P2POp op{is_send, peer, /*tag=*/0, tensor};
  transport.Start(op);
  transport.Wait(op);
  DeviceEvent(transport.device())
      .Wait();  // on a GPU the line above only queues
}

// The median half round trip with `peer`; both sides call it.
double HalfTripSeconds(GroupTransport& transport, int peer, int64_t bytes,
                       int trips) {
  const at::Tensor tensor = Message(bytes, transport.device());
  const bool starts = transport.rank() < peer;
  std::vector<double> seconds;
  for (int trip = 0; trip < kWarmupTrips + trips; ++trip) {
    const double start = Now();
    Pass(transport, peer, starts, tensor);
    Pass(transport, peer, !starts, tensor);
    if (trip >= kWarmupTrips) seconds.push_back((Now() - start) / 2);
  }
  return Median(std::move(seconds));
}

// The median time of a copy, by the target's clock: ATen makes its stream wait
// for the copy.
double CopySeconds(c10::Device source, c10::Device target, int64_t bytes) {
  const at::Tensor from = Message(bytes, source);
  at::Tensor to = Message(bytes, target);
  std::vector<double> seconds;
  for (int copy = 0; copy < kWarmupTrips + kCopies; ++copy) {
    DeviceEvent(source).Wait();
    const DeviceEvent start(target);
    to.copy_(from, /*non_blocking=*/true);
    const double taken = WaitForSecondsBetween(start, DeviceEvent(target));
    if (copy >= kWarmupTrips) seconds.push_back(taken);
  }
  return Median(std::move(seconds));
}

int64_t LargeBytes(int64_t message_bytes) {
  return std::clamp(message_bytes, kSmallBytes, kMaxLargeBytes);
}

}  // namespace

LinkCosts FitLink(int64_t small_bytes, double small_seconds,
                  int64_t large_bytes, double large_seconds) {
  LinkCosts link;
  if (large_bytes > small_bytes) {
    link.beta_seconds_per_byte =
        std::max(0.0, (large_seconds - small_seconds) /
                          static_cast<double>(large_bytes - small_bytes));
  }
  link.alpha_seconds =
      std::max(0.0, small_seconds - static_cast<double>(small_bytes) *
                                        link.beta_seconds_per_byte);
  return link;
}

LinkCosts MeasureLink(const Group& pipeline, c10::Device device,
                      int64_t message_bytes) {
  LinkCosts mean;
  const int num_pairs = pipeline.size() - 1;
  if (num_pairs == 0) return mean;
  GroupTransport transport(pipeline, device);
  const int rank = transport.rank();
  const int64_t large = LargeBytes(message_bytes);
  LinkCosts next;  // with the rank after
  for (int parity : {0, 1}) {
    const int peer = rank % 2 == parity ? rank + 1 : rank - 1;
    if (peer < 0 || peer >= pipeline.size()) continue;
    const double small_seconds =
        HalfTripSeconds(transport, peer, kSmallBytes, kSmallTrips);
    const LinkCosts link =
        FitLink(kSmallBytes, small_seconds, large,
                HalfTripSeconds(transport, peer, large, kLargeTrips));
    if (peer > rank) next = link;
  }
  for (const std::vector<double>& costs :
       transport.Gather({next.alpha_seconds, next.beta_seconds_per_byte})) {
    mean.alpha_seconds += costs[0] / num_pairs;
    mean.beta_seconds_per_byte += costs[1] / num_pairs;
  }
  return mean;
}

LinkCosts MeasureCopies(const std::vector<c10::Device>& devices,
                        int64_t message_bytes) {
  LinkCosts mean;
  const int64_t large = LargeBytes(message_bytes);
  const auto pairs = static_cast<double>(devices.size()) - 1;
  for (size_t i = 0; i + 1 < devices.size(); ++i) {
    const LinkCosts link = FitLink(
        kSmallBytes, CopySeconds(devices[i], devices[i + 1], kSmallBytes),
        large, CopySeconds(devices[i], devices[i + 1], large));
    mean.alpha_seconds += link.alpha_seconds / pairs;
    mean.beta_seconds_per_byte += link.beta_seconds_per_byte / pairs;
  }
  return mean;
}

}  // namespace rankwise
