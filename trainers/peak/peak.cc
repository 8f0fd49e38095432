#include "trainers/peak/peak.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "parallel/clock/steady_time.h"
#include "parallel/device/device_event.h"
#include "parallel/device/device_facts.h"

namespace rankwise {
namespace {

constexpr int kFewestTries = 3;

c10::ScalarType TypeOf(const std::string& precision) {
  if (precision == "bf16") return at::kBFloat16;
  return precision == "fp16" ? at::kHalf : at::kFloat;
}

int64_t LastCacheBytes(c10::Device device) {
  if (!device.is_cuda()) return sysconf(_SC_LEVEL3_CACHE_SIZE);
  const auto gpu = DescribeGpu(device.index());
  return gpu.ok() ? gpu->l2_bytes : 0;
}

// Until the device is done.
double SecondsOf(const std::function<void()>& work, c10::Device device) {
  const double start = SteadySeconds();
  work();
  DeviceEvent(device).Wait();
  return SteadySeconds() - start;
}

// After a first call, which is not counted.
double LeastSeconds(const std::function<void()>& work, c10::Device device,
                    double seconds) {
  SecondsOf(work, device);
  double least = SecondsOf(work, device);
  const double end = SteadySeconds() + seconds - least;
  for (int tries = 1; tries < kFewestTries || SteadySeconds() < end; ++tries)
    least = std::min(least, SecondsOf(work, device));
  return least;
}

double ProductRate(const PeakUse& use, const PeakEffort& effort) {
  const int64_t n = effort.matrix_size;
  const at::TensorOptions options =
      at::TensorOptions(TypeOf(use.precision)).device(use.device);
  const at::Tensor a = at::full({n, n}, 0.5, options);
  const at::Tensor b = at::full({n, n}, 0.25, options);
  at::Tensor product = at::full({n, n}, 0, options);
  const double seconds = LeastSeconds([&] { at::mm_out(product, a, b); },
                                      use.device, effort.seconds);
  const auto size = static_cast<double>(n);
  return 2 * size * size * size / seconds;
}

double TriadRate(const PeakUse& use, const PeakEffort& effort) {
  const int64_t elements = effort.array_bytes / 4;
  const at::TensorOptions options =
      at::TensorOptions(at::kFloat).device(use.device);
  at::Tensor a = at::full({elements}, 0, options);
  const at::Tensor b = at::full({elements}, 1, options);
  const at::Tensor c = at::full({elements}, 2, options);
  const double seconds = LeastSeconds([&] { at::add_out(a, b, c, 3); },
                                      use.device, effort.seconds);
  return 12 * static_cast<double>(elements) / seconds;
}

}  // namespace

PeakEffort EffortFor(c10::Device device) {
  PeakEffort effort;
  effort.array_bytes = std::clamp<int64_t>(4 * LastCacheBytes(device),
                                           effort.array_bytes, 256LL << 20);
  if (device.is_cuda()) effort.matrix_size = 8192;
  return effort;
}

DevicePeak MeasurePeak(const PeakUse& use, const PeakEffort& effort) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(use.threads);
  at::globalContext().setAllowTF32CuBLAS(use.precision == "tf32");
  return {ProductRate(use, effort), TriadRate(use, effort)};
}

}  // namespace rankwise
