#include "analysis/runs/comm_bench.h"

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"

namespace rankwise {

bool IsCommBench(const RunRecord& run) {
  static constexpr absl::string_view kBinaries[] = {
      "comm_bench", "ladder", "new_group", "overlap",
      "pairs",      "replay", "units"};
  return absl::c_linear_search(kBinaries, run.binary);
}

}  // namespace rankwise
