// Stores a measured peak, so that a host measures it once for all runs.
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

// The device and use of a peak, by name: "threads", "precision", ...
using PeakKey = std::map<std::string, std::string>;

// Returns the path of the file in `folder` for a peak of `key`.
std::string PeakPath(const std::string& folder, const PeakKey& key);

// Returns nullopt if the file is missing, damaged, or has another key; also if
// it is due for another measurement because all so far were disturbed and the
// last one is older than a minute, or, after five of them, than an hour.
std::optional<DevicePeak> ReadPeak(const std::string& path, const PeakKey& key);

// Replaces the file atomically; after disturbed measurements, retains the
// larger of each rate.
absl::Status WritePeak(const std::string& path, const PeakKey& key,
                       const MeasuredPeak& measured);

// Returns ReadPeak's result; if it is nullopt, first calls `measure`, which
// must call WritePeak. Of all processes that request the same file one
// measures, and the others sleep until it is done, so that no rank of a host
// computes during a measurement. Creates the folder.
absl::StatusOr<DevicePeak> PeakOnce(
    const std::string& path, const PeakKey& key,
    const std::function<absl::Status()>& measure);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_PEAK_FILE_H_
