// Numbers of things in messages.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_COUNTED_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_COUNTED_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rankwise::comm_bench {

// "1 rank", "2 ranks".
inline std::string Counted(int64_t number, absl::string_view thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_COUNTED_H_
