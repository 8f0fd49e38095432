// The sizes of a sweep.
#ifndef RANKWISE_COMM_BENCH_SWEEP_SIZES_H_
#define RANKWISE_COMM_BENCH_SWEEP_SIZES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise::comm_bench {

// "8", "4K", "64MiB", "1G": bytes, in powers of 1024 as nccl-tests counts.
// InvalidArgument for anything else, with what is allowed.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// "8,4K,1M": in the order given.
absl::StatusOr<std::vector<int64_t>> ParseByteList(absl::string_view text);

// min, min * factor, ... and max, which comes last even where no power of the
// factor meets it. Requires 1 <= min <= max and factor > 1.
std::vector<int64_t> GeometricSizes(int64_t min, int64_t max, double factor);

// "8 B", "4 KiB", "1.5 MiB".
std::string FormatBytes(int64_t bytes);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_SIZES_H_
