#include "trainers/peak/peak_process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/rank_process.h"
#include "records/run_origin.h"
#include "trainers/peak/peak_file.h"

namespace rankwise {
namespace {

// Not a flag: followed by a folder, a device, threads and a precision.
constexpr char kMeasure[] = "measure_peak_into";
constexpr int kArguments = 6;

PeakKey KeyOf(const PeakUse& use) {
  const HostInfo host = CollectHostInfo();
  std::string device = host.cpu_model;
  if (use.device.is_cuda()) {
    const auto gpu = DescribeGpu(use.device.index());
    device = gpu.ok() ? gpu->name : use.device.str();
  }
  return {{"host", host.hostname},
          {"device", device},
          {"cores", absl::StrCat(host.cores)},
          {"threads", absl::StrCat(use.threads)},
          {"precision", use.precision},
          {"torch", TORCH_VERSION}};
}

// Waits for the child's end; returns it as a Status.
absl::Status WaitFor(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR)
      return absl::UnavailableError(
          absl::StrCat("waiting for its process: ", strerror(errno)));
  }
  return status == 0 ? absl::OkStatus()
                     : absl::UnavailableError(absl::StrCat(
                           "its process ended with ", DescribeEnd(status)));
}

absl::Status MeasureInAProcess(const std::string& folder, const PeakUse& use) {
  std::vector<std::string> words = {
      "rankwise_peak",           kMeasure,     folder, use.device.str(),
      absl::StrCat(use.threads), use.precision};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  const int error = posix_spawn(&child, "/proc/self/exe", nullptr, nullptr,
                                argv.data(), environ);
  if (error != 0)
    return absl::UnavailableError(
        absl::StrCat("starting its process: ", strerror(error)));
  return WaitFor(child);
}

}  // namespace

absl::StatusOr<DevicePeak> FindPeak(const std::string& folder,
                                    const PeakUse& use) {
  const PeakKey key = KeyOf(use);
  return PeakOnce(PeakPath(folder, key), key,
                  [&] { return MeasureInAProcess(folder, use); });
}

std::optional<int> RunAsPeakProcess(int argc, char** argv) {
  if (argc != kArguments || absl::string_view(argv[1]) != kMeasure)
    return std::nullopt;
  absl::Status status;
  try {
    PeakUse use{.device = c10::Device(argv[3]), .precision = argv[5]};
    if (!absl::SimpleAtoi(argv[4], &use.threads) || use.threads < 1) return 1;
    const PeakKey key = KeyOf(use);
    status = WritePeak(PeakPath(argv[2], key), key,
                       MeasurePeak(use, EffortFor(use.device)));
  } catch (const std::exception& error) {
    status = absl::UnavailableError(error.what());
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "measuring the device's peak: %s\n",
               std::string(status.message()).c_str());
  return 1;
}

}  // namespace rankwise
