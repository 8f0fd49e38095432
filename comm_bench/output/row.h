// One line of the benchmark's output.
#ifndef RANKWISE_COMM_BENCH_OUTPUT_ROW_H_
#define RANKWISE_COMM_BENCH_OUTPUT_ROW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "comm_bench/timing/series.h"
#include "comm_bench/timing/summary.h"

namespace rankwise::comm_bench {

// The same on every rank; of groups that run at the same time, each rank
// describes its own, and the times are those of all.
struct Row {
  std::string collective;  // "all_reduce"
  std::string layer;       // "c10d"; of the ladder: "gloo", "backend", ...
  std::vector<int> ranks;  // of the group, as ranks of the job; empty: all
  int group_size = 1;      // ranks that make the call together
  int64_t bytes = 0;
  int64_t count = 0;
  std::string dtype;  // "float32"; "" without elements
  std::string op;     // "sum"; "" where nothing is reduced
  int root = -1;      // -1: none
  bool in_place = false;
  bool events = false;      // times are of the device's events, not the host's
  bool graph = false;       // replayed from a graph
  bool registered = false;  // buffers are registered with the library
  std::string algorithm;    // that NCCL chose, "RING"; "" unknown
  std::string protocol;     // "SIMPLE"; "" unknown
  Summary time;             // seconds of one call
  double algbw = 0;         // GB/s, decimal; 0 without elements
  double busbw = 0;
  // Of what a copy between two GPUs reaches, busbw's share; 0 unknown.
  double peer_share = 0;
  int64_t wrong = -1;  // wrong elements on all ranks; -1: not checked
  Series::End end = Series::End::kCounted;
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_OUTPUT_ROW_H_
