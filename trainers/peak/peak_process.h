// Measures a peak in a separate process, so that the run retains neither the
// measurement's memory nor that of libraries, and begins as if nothing had been
// measured.
#ifndef RANKWISE_TRAINERS_PEAK_PEAK_PROCESS_H_
#define RANKWISE_TRAINERS_PEAK_PEAK_PROCESS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "trainers/peak/device_peak.h"
#include "trainers/peak/peak.h"

namespace rankwise {

// Returns the peak of `use` on this host, from a file in `folder`. If it is not
// stored yet, starts this program again, as RunAsPeakProcess, and waits for it:
// a second or two. Processes of one host that call it at the same time measure
// once.
absl::StatusOr<DevicePeak> FindPeak(const std::string& folder,
                                    const PeakUse& use);

// Must be the first call in main of a program that calls FindPeak: if it was
// started to measure, measures and returns main's exit code.
std::optional<int> RunAsPeakProcess(int argc, char** argv);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_PEAK_PROCESS_H_
