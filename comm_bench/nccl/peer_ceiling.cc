#include "comm_bench/nccl/peer_ceiling.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rankwise::comm_bench {
PeerCeiling DescribePeerCopies(
    const absl::StatusOr<std::vector<micro::PeerCopy>>& copies) {
  if (!copies.ok()) {
    return {0, absl::StrCat("left out: ", copies.status().message())};
  }
  const auto slowest =
      std::min_element(copies->begin(), copies->end(),
                       [](const micro::PeerCopy& a, const micro::PeerCopy& b) {
                         return a.bytes_per_second < b.bytes_per_second;
                       });
  return {slowest->bytes_per_second,
          absl::StrFormat(
              "%.1f GB/s from GPU %d to %d, the slowest of %d "
              "pairs, %s",
              slowest->bytes_per_second * 1e-9, slowest->from, slowest->to,
              copies->size(),
              slowest->direct ? "direct" : "through the host's memory")};
}

PeerCeiling MeasurePeerCeiling(Control& control, c10::Device device,
                               bool one_host) {
  if (!device.is_cuda()) return {};
  if (!one_host) return {0, "left out: the ranks are on several hosts"};
  PeerCeiling ceiling;
  if (control.rank() == 0) {
    ceiling = DescribePeerCopies(micro::MeasurePeerCopies(int64_t{64} << 20));
  }
  // All ranks call this, regardless of their GPUs.
  ceiling.bytes_per_second = control.Max({ceiling.bytes_per_second})[0];
  return ceiling;
}

}  // namespace rankwise::comm_bench
