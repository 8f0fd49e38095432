// A peak is measured by a process of its own, so that the run keeps neither the
// memory of it nor what libraries allocate for it, and begins as if nothing had
// been measured.
#ifndef RANKWISE_TRAINERS_PEAK_PEAK_PROCESS_H_
#define RANKWISE_TRAINERS_PEAK_PEAK_PROCESS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "trainers/peak/device_peak.h"
#include "trainers/peak/peak.h"

namespace rankwise {

// The peak of `use` on this host, from a file in `folder`. Where it is not yet
// there, starts this program again, as RunAsPeakProcess, and waits for it: a
// second or two. Processes of one host that call it at the same time measure
// once.
absl::StatusOr<DevicePeak> FindPeak(const std::string& folder,
                                    const PeakUse& use);

// Of a program that calls FindPeak, the first thing in main: if it was started
// to measure, measures, and gives main's exit code.
std::optional<int> RunAsPeakProcess(int argc, char** argv);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_PEAK_PROCESS_H_
