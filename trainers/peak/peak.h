// What a device reaches at most, measured: the limit that steps are held
// against (Williams, Waterman and Patterson 2009, "Roofline").
#ifndef RANKWISE_TRAINERS_PEAK_PEAK_H_
#define RANKWISE_TRAINERS_PEAK_PEAK_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "trainers/peak/device_peak.h"

namespace rankwise {

// Of which device, used how.
struct PeakUse {
  c10::Device device = c10::kCPU;
  int threads = 1;                 // of a CPU
  std::string precision = "fp32";  // also "bf16", "fp16", and "tf32" on GPUs
};

struct PeakEffort {
  int64_t matrix_size = 2048;        // of square matrices
  int64_t array_bytes = 64LL << 20;  // of each of the triad's three arrays
  // Of products, and as long of triads; three of each at least.
  double seconds = 0.4;
};

// Matrices and arrays that are large for `device`: arrays of four times its
// last cache, as STREAM asks for (McCalpin 1995), but of 256 MiB at most.
PeakEffort EffortFor(c10::Device device);

struct MeasuredPeak {
  DevicePeak peak;
  // Other processes were on the cores: even the best try of products or triads
  // had less than 90 % of its threads' time.
  bool disturbed = false;
};

// The best of several matrix products and triads (a = b + s c, 12 bytes an
// element). Sets this process's number of threads and whether
// products may round to TF32. Throws c10::Error, as where memory is short.
MeasuredPeak MeasurePeak(const PeakUse& use, const PeakEffort& effort);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_PEAK_H_
