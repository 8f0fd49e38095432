#include "trainers/peak_flag.h"

#include <cstdlib>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "records/text.h"
#include "trainers/flag_rules.h"
#include "trainers/peak/peak_process.h"

TRAINER_FLAG(
    kOutput, std::string, peak, "",
    "measured: the device's measured peak, which a host's first run determines "
    "in about two seconds and stores in ~/.cache/rankwise; "
    "none: no reference peak; if empty, $RANKWISE_PEAK, or else measured");

namespace rankwise {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string HowToTakePeak() {
  for (const std::string& how :
       {absl::GetFlag(FLAGS_peak), Variable("RANKWISE_PEAK")}) {
    if (!how.empty()) return how;
  }
  return "measured";
}

// Returns "" if the user has no folder for such files.
std::string CacheFolder() {
  const std::string cache = Variable("XDG_CACHE_HOME"), home = Variable("HOME");
  if (!cache.empty()) return cache + "/rankwise";
  return home.empty() ? "" : home + "/.cache/rankwise";
}

PeakUse UseOf(const Worker& worker, const TrainConfig& config) {
  const bool tf32 = config.tf32 && config.precision == Precision::kFp32;
  return {.device = worker.device,
          .threads = worker.threads,
          .precision = tf32 ? "tf32" : PrecisionName(config.precision)};
}

absl::StatusOr<DevicePeak> Measured(const PeakUse& use) {
  const std::string folder = CacheFolder();
  if (folder.empty())
    return absl::NotFoundError(
        "neither $XDG_CACHE_HOME nor $HOME names a folder to store it in");
  return FindPeak(folder, use);
}

}  // namespace

void CheckPeakFlag(FlagChecks& checks) {
  checks.OneOf("peak", HowToTakePeak(), {"measured", "none"});
}

std::string SetPeak(const Worker& worker, TrainConfig& config) {
  DevicePeak& peak = config.output.peak;
  std::string line;
  if (HowToTakePeak() == "measured") {
    const PeakUse use = UseOf(worker, config);
    const absl::StatusOr<DevicePeak> measured = Measured(use);
    if (measured.ok()) {
      peak = *measured;
      line = absl::StrFormat(
          "peak, measured on this host: %.4g TFLOP/s (%s, %s), %.4g GB/s",
          1e-12 * peak.flops_per_second, use.precision,
          use.device.is_cpu() ? Counted(use.threads, "thread")
                              : use.device.str(),
          1e-9 * peak.bytes_per_second);
    } else {
      line = absl::StrCat(
          "no peak was measured: ", std::string(measured.status().message()),
          "; --peak=none disables the measurement");
    }
  }
  if (config.output.peak_tflops > 0)
    peak.flops_per_second = 1e12 * config.output.peak_tflops;
  return line;
}

}  // namespace rankwise
