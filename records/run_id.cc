#include "records/run_id.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rankwise {

std::string NewRunId(absl::Time now) {
  std::random_device random;
  return absl::StrCat(
      absl::FormatTime("%Y%m%d-%H%M%S", now, absl::UTCTimeZone()), "-",
      absl::StrFormat("%08x", random()));
}

}  // namespace rankwise
