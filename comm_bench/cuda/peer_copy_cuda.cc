#include <algorithm>
#include <array>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/cuda/measurements.h"
#include "comm_bench/cuda/peer_copy.h"
#include "parallel/device/device_facts.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

constexpr int kRepetitions = 7;

absl::StatusOr<double> MedianSeconds(Measurement& copy) {
  std::array<double, kRepetitions> seconds = {};
  for (double& each : seconds) {
    const absl::StatusOr<double> run = copy.Run();
    if (!run.ok()) return run;
    each = *run;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRepetitions / 2];
}

// Checked before and after: the timed copies go to cleared memory, too.
absl::StatusOr<double> CheckedSeconds(Measurement& copy) {
  absl::Status status = WarmUpAndCheck(copy);
  if (status.ok()) status = copy.Clear();
  if (!status.ok()) return status;
  const absl::StatusOr<double> seconds = MedianSeconds(copy);
  if (!seconds.ok()) return seconds;
  status = copy.Check();
  if (!status.ok()) return status;
  return seconds;
}

absl::StatusOr<PeerCopy> MeasurePair(int from, int to, int64_t bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PeerCopyMeasurement> copy,
                   MakePeerCopy(from, to, bytes));
  const absl::StatusOr<double> seconds = CheckedSeconds(*copy);
  if (!seconds.ok()) {
    return absl::Status(
        seconds.status().code(),
        absl::StrCat("copying from GPU ", from, " to GPU ", to, ": ",
                     std::string(seconds.status().message())));
  }
  return PeerCopy{.from = from,
                  .to = to,
                  .bytes_per_second = bytes / *seconds,
                  .direct = copy->direct()};
}

}  // namespace

absl::StatusOr<std::vector<PeerCopy>> MeasurePeerCopies(int64_t bytes) {
  if (bytes < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("a peer copy of ", bytes, " bytes: at least 1 is needed"));
  const int gpus = VisibleGpus();
  if (gpus == 0) return absl::NotFoundError(WhyNoGpu());
  if (gpus == 1)
    return absl::NotFoundError("this process sees one GPU: there is no pair");
  std::vector<PeerCopy> copies;
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      if (from == to) continue;
      ASSIGN_OR_RETURN(PeerCopy copy, MeasurePair(from, to, bytes));
      copies.push_back(copy);
    }
  }
  return copies;
}

}  // namespace rankwise::micro
