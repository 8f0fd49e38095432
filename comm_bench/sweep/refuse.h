#ifndef RANKWISE_COMM_BENCH_SWEEP_REFUSE_H_
#define RANKWISE_COMM_BENCH_SWEEP_REFUSE_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise::comm_bench {

// Returns InvalidArgument with the concatenated parts.
template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_REFUSE_H_
