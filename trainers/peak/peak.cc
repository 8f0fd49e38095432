#include "trainers/peak/peak.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <functional>

#include "parallel/clock/steady_time.h"
#include "parallel/device/device_event.h"
#include "parallel/device/device_facts.h"

namespace rankwise {
namespace {

constexpr int kFewestTries = 3;
constexpr double kUndisturbedShare = 0.9;

c10::ScalarType TypeOf(const std::string& precision) {
  if (precision == "bf16") return at::kBFloat16;
  return precision == "fp16" ? at::kHalf : at::kFloat;
}

int64_t LastCacheBytes(c10::Device device) {
  if (!device.is_cuda()) return sysconf(_SC_LEVEL3_CACHE_SIZE);
  const auto gpu = DescribeGpu(device.index());
  return gpu.ok() ? gpu->l2_bytes : 0;
}

struct Try {
  double seconds = 0;      // until the device is done
  double cpu_seconds = 0;  // of all threads
};

Try Time(const std::function<void()>& work, c10::Device device) {
  // While an accelerator runs this call, the host submits the rest, so that the
  // time between the events excludes the host's.
  if (!device.is_cpu()) work();
  const std::clock_t cpu_start = std::clock();
  const DeviceEvent start(device);
  work();
  const double seconds = WaitForSecondsBetween(start, DeviceEvent(device));
  return {seconds,
          static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC};
}

// Returns the shortest try after a first call, which is not counted.
Try BestTry(const std::function<void()>& work, c10::Device device,
            double seconds) {
  Time(work, device);
  Try best = Time(work, device);
  const double end = SteadySeconds() + seconds - best.seconds;
  for (int tries = 1; tries < kFewestTries || SteadySeconds() < end; ++tries) {
    const Try next = Time(work, device);
    if (next.seconds < best.seconds) best = next;
  }
  return best;
}

// Products of constants draw less power on a GPU, which then clocks higher than
// in training. Leaves the default generator to the run.
at::Tensor RandomMatrix(int64_t n, uint64_t seed,
                        const at::TensorOptions& options) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn({n, n}, generator).to(options);
}

Try BestProduct(const PeakUse& use, const PeakEffort& effort) {
  const int64_t n = effort.matrix_size;
  const at::TensorOptions options =
      at::TensorOptions(TypeOf(use.precision)).device(use.device);
  const at::Tensor a = RandomMatrix(n, /*seed=*/1, options);
  const at::Tensor b = RandomMatrix(n, /*seed=*/2, options);
  at::Tensor product = at::full({n, n}, 0, options);
  return BestTry([&] { at::mm_out(product, a, b); }, use.device,
                 effort.seconds);
}

Try BestTriad(const PeakUse& use, int64_t elements, double seconds) {
  const at::TensorOptions options =
      at::TensorOptions(at::kFloat).device(use.device);
  at::Tensor a = at::full({elements}, 0, options);
  const at::Tensor b = at::full({elements}, 1, options);
  const at::Tensor c = at::full({elements}, 2, options);
  return BestTry([&] { at::add_out(a, b, c, 3); }, use.device, seconds);
}

bool IsDisturbed(const PeakUse& use, const Try& best) {
  return use.device.is_cpu() &&
         best.cpu_seconds < kUndisturbedShare * use.threads * best.seconds;
}

}  // namespace

PeakEffort EffortFor(c10::Device device) {
  PeakEffort effort;
  effort.array_bytes = std::clamp<int64_t>(4 * LastCacheBytes(device),
                                           effort.array_bytes, 256LL << 20);
  if (device.is_cuda()) effort.matrix_size = 8192;
  return effort;
}

MeasuredPeak MeasurePeak(const PeakUse& use, const PeakEffort& effort) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(use.threads);
  at::globalContext().setAllowTF32CuBLAS(use.precision == "tf32");
  const int64_t elements = effort.array_bytes / 4;
  const Try product = BestProduct(use, effort);
  const Try triad = BestTriad(use, elements, effort.seconds);
  const auto size = static_cast<double>(effort.matrix_size);
  return {.peak = {2 * size * size * size / product.seconds,
                   12 * static_cast<double>(elements) / triad.seconds},
          .disturbed = IsDisturbed(use, product) || IsDisturbed(use, triad)};
}

}  // namespace rankwise
