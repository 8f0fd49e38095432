#include "parallel/pipeline/measure_link.h"

#include <algorithm>

#include "ATen/ops/zeros.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "parallel/pipeline/channel.h"
#include "parallel/pipeline/timeline.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

constexpr int64_t kSmallBytes = 4;
constexpr int64_t kMaxLargeBytes = int64_t{4} << 20;
constexpr int kSmallTrips = 20, kLargeTrips = 7, kWarmupTrips = 2;

// Until the host sees what it waited for: on a GPU, Wait only queues.
void Synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type())
      .synchronizeDevice(device.has_index() ? device.index() : 0);
}

void Pass(Channel& channel, int peer, bool is_send, const at::Tensor& tensor) {
  P2POp transfer(is_send, peer, /*tag=*/0, tensor);
  channel.Start(transfer);
  channel.Wait(transfer);
  Synchronize(channel.device());
}

// The median half round trip with `peer`; both sides call it.
double HalfTripSeconds(Channel& channel, int peer, int64_t bytes, int trips) {
  const at::Tensor tensor =
      at::zeros({bytes}, at::TensorOptions(at::kByte).device(channel.device()));
  const bool starts = channel.rank() < peer;
  std::vector<double> seconds;
  for (int trip = 0; trip < kWarmupTrips + trips; ++trip) {
    const double start = Now();
    Pass(channel, peer, starts, tensor);
    Pass(channel, peer, !starts, tensor);
    if (trip >= kWarmupTrips) seconds.push_back((Now() - start) / 2);
  }
  const auto median = seconds.begin() + seconds.size() / 2;
  std::nth_element(seconds.begin(), median, seconds.end());
  return *median;
}

LinkCosts MeasureWith(Channel& channel, int peer, int64_t large_bytes) {
  const double small = HalfTripSeconds(channel, peer, kSmallBytes, kSmallTrips);
  const double large = HalfTripSeconds(channel, peer, large_bytes, kLargeTrips);
  return FitLink(kSmallBytes, small, large_bytes, large);
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

LinkCosts MeasureLink(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                      const std::vector<int>& ranks, int rank,
                      c10::Device device, int64_t message_bytes) {
  Channel channel(group, ranks, rank, device);
  LinkCosts mean;
  const int num_pairs = channel.num_ranks() - 1;
  if (num_pairs == 0) return mean;
  const int64_t large_bytes =
      std::clamp(message_bytes, kSmallBytes, kMaxLargeBytes);
  LinkCosts next;  // with the rank after
  for (int parity : {0, 1}) {
    const int peer = rank % 2 == parity ? rank + 1 : rank - 1;
    if (peer < 0 || peer >= channel.num_ranks()) continue;
    const LinkCosts link = MeasureWith(channel, peer, large_bytes);
    if (peer > rank) next = link;
  }
  for (const std::vector<double>& costs :
       channel.Gather({next.alpha_seconds, next.beta_seconds_per_byte})) {
    mean.alpha_seconds += costs[0] / num_pairs;
    mean.beta_seconds_per_byte += costs[1] / num_pairs;
  }
  return mean;
}

}  // namespace rankwise
