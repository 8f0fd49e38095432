#include <cmath>

#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"
#include "comm_bench/sweep/plan.h"
#include "records/text.h"

ABSL_FLAG(std::string, min_bytes, "8", "the smallest size, such as 8 or 4K");
ABSL_FLAG(std::string, max_bytes, "64M", "the largest size");
ABSL_FLAG(double, factor, 4, "ratio of one size to the previous one");
ABSL_FLAG(std::string, sizes, "",
          "8,4K,1M; replaces min_bytes, max_bytes, factor");

namespace rankwise::comm_bench {

void ReadSizes(BenchConfig& config, FlagChecks& checks) {
  const std::string list = absl::GetFlag(FLAGS_sizes);
  config.sizes_given = !list.empty();
  if (config.sizes_given) {
    config.sizes = ReadText<std::vector<int64_t>>("sizes", list, ParseByteList,
                                                  {}, checks);
    return;
  }
  const int64_t min = ReadText<int64_t>(
      "min_bytes", absl::GetFlag(FLAGS_min_bytes), ParseBytes, 1, checks);
  const int64_t max = ReadText<int64_t>(
      "max_bytes", absl::GetFlag(FLAGS_max_bytes), ParseBytes, 1, checks);
  const double factor = absl::GetFlag(FLAGS_factor);
  if (min > max) {
    checks.Complain(absl::StrCat("--min_bytes=", FormatBytes(min),
                                 ": is above --max_bytes=", FormatBytes(max)));
  }
  if (!std::isfinite(factor) || factor < 1.01) {
    checks.Complain(absl::StrCat("--factor=", factor,
                                 ": must be at least 1.01, and finite"));
  }
  if (checks.status().ok()) config.sizes = GeometricSizes(min, max, factor);
}

}  // namespace rankwise::comm_bench
