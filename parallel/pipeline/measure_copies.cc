#include "parallel/pipeline/measure_copies.h"

#include <algorithm>

#include "ATen/ops/zeros.h"
#include "parallel/device/moment.h"
#include "parallel/pipeline/measure_link.h"

namespace rankwise {
namespace {

constexpr int64_t kSmallBytes = 4;
constexpr int64_t kMaxLargeBytes = int64_t{4} << 20;
constexpr int kWarmupCopies = 2, kCopies = 7;

// The median time of a copy, by the target's clock: ATen makes its stream wait
// for the copy.
double CopySeconds(c10::Device source, c10::Device target, int64_t bytes) {
  const at::Tensor from =
      at::zeros({bytes}, at::TensorOptions(at::kByte).device(source));
  at::Tensor to =
      at::zeros({bytes}, at::TensorOptions(at::kByte).device(target));
  std::vector<double> seconds;
  for (int copy = 0; copy < kWarmupCopies + kCopies; ++copy) {
    Moment(source).Wait();
    const Moment start(target);
    to.copy_(from, /*non_blocking=*/true);
    const double taken = WaitForSecondsBetween(start, Moment(target));
    if (copy >= kWarmupCopies) seconds.push_back(taken);
  }
  const auto median = seconds.begin() + seconds.size() / 2;
  std::nth_element(seconds.begin(), median, seconds.end());
  return *median;
}

}  // namespace

LinkCosts MeasureCopies(const std::vector<c10::Device>& devices,
                        int64_t message_bytes) {
  LinkCosts mean;
  const int64_t large = std::clamp(message_bytes, kSmallBytes, kMaxLargeBytes);
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
