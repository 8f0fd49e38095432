// Where a measured peak is kept, so that one run of a host measures it for all
// that follow.
#ifndef RANKWISE_TRAINERS_PEAK_PEAK_FILE_H_
#define RANKWISE_TRAINERS_PEAK_PEAK_FILE_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainers/peak/device_peak.h"
#include "trainers/peak/peak.h"

namespace rankwise {

// What a peak is of, by name: "threads", "precision", ...
using PeakKey = std::map<std::string, std::string>;

// The file in `folder` that a peak of `key` is kept in.
std::string PeakPath(const std::string& folder, const PeakKey& key);

// None where there is no such file, where it is damaged, and where it is of
// another key; and where all its measurements were disturbed and the last one
// is older than a minute, after five of them than an hour: then it is time for
// another.
std::optional<DevicePeak> ReadPeak(const std::string& path, const PeakKey& key);

// Replaces the file as a whole; after disturbed measurements, keeps the larger
// of each rate.
absl::Status WritePeak(const std::string& path, const PeakKey& key,
                       const MeasuredPeak& measured);

// ReadPeak; before it, where that gives none, `measure`, which calls WritePeak.
// Of all processes that want the same file one measures, and the others sleep
// until it is done: so no rank of a host computes while another one measures.
// Makes the folder.
absl::StatusOr<DevicePeak> PeakOnce(
    const std::string& path, const PeakKey& key,
    const std::function<absl::Status()>& measure);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_PEAK_FILE_H_
