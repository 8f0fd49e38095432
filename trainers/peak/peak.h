// Measures the peak rates of a device: the limit to which steps are compared
// (Williams, Waterman and Patterson 2009, "Roofline").
#ifndef RANKWISE_TRAINERS_PEAK_PEAK_H_
#define RANKWISE_TRAINERS_PEAK_PEAK_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "trainers/peak/device_peak.h"

namespace rankwise {

// The device and its use.
struct PeakUse {
  c10::Device device = c10::kCPU;
  int threads = 1;                 // threads of a CPU
  std::string precision = "fp32";  // also "bf16", "fp16", and "tf32" on GPUs
};

struct PeakEffort {
  int64_t matrix_size = 2048;        // of square matrices
  int64_t array_bytes = 64LL << 20;  // of each of the triad's three arrays
  // Seconds of products, and of triads; at least three of each.
  double seconds = 0.4;
};

// Returns sizes that are large for `device`: arrays of four times its last
// cache, as STREAM requires (McCalpin 1995), but of at most 256 MiB.
PeakEffort EffortFor(c10::Device device);

struct MeasuredPeak {
  DevicePeak peak;
  // Other processes used the cores: even the best try of products or triads had
  // less than 90 % of its threads' time.
  bool disturbed = false;
};

// Returns the best of several matrix products and triads (a = b + s c, 12 bytes
// per element). Sets this process's number of threads and whether products may
// round to TF32. Throws c10::Error, for example if memory is short.
MeasuredPeak MeasurePeak(const PeakUse& use, const PeakEffort& effort);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_PEAK_H_
