#include "analysis/prediction/layout.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rankwise {

std::string Layout::Name() const {
  if (pp == 1) {
    const std::string name = absl::StrCat("ddp x", dp);
    if (bucket_bytes == 0) return name;
    return absl::StrFormat("%s, buckets of %.3g MB", name, bucket_bytes * 1e-6);
  }
  return absl::StrCat(
      schedule, " pp ", pp, dp > 1 ? absl::StrCat(" x dp ", dp) : "", ", ",
      micro_batches, micro_batches == 1 ? " micro-batch" : " micro-batches");
}

}  // namespace rankwise
