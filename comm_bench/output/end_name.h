// Why a series ended, as records and CSV call it.
#ifndef RANKWISE_COMM_BENCH_OUTPUT_END_NAME_H_
#define RANKWISE_COMM_BENCH_OUTPUT_END_NAME_H_

#include "comm_bench/timing/series.h"

namespace rankwise::comm_bench {

constexpr const char* EndName(Series::End end) {
  switch (end) {
    case Series::End::kCounted:
      return "counted";
    case Series::End::kPrecise:
      return "precise";
    case Series::End::kOutOfTime:
      return "out_of_time";
    case Series::End::kMaxIterations:
      return "max_iterations";
    case Series::End::kInterrupted:
      return "interrupted";
  }
  return "";
}

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_END_NAME_H_
