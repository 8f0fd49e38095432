// One configuration of a study with its repetitions.

#ifndef ANALYSIS_CELL_H_
#define ANALYSIS_CELL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/run_trace.h"
#include "analysis/throughput.h"
#include "records/record.h"

namespace rankwise {

struct Cell {
  RunRecord run;  // rank 0's of the first repetition
  int64_t global_batch = 0;
  int64_t rank_batch = 0;
  std::vector<Throughput> repetitions;
  // A device other than the CPU that two ranks of one host used, or "".
  std::string shared_device;
  // The ranks of one host had more threads than the host has cores.
  bool oversubscribed = false;

  // One value of `metric` per repetition.
  std::vector<double> Values(double Throughput::*metric) const;
  std::string Name() const;  // "ddp on 2 ranks"
};

// Groups runs into cells by trainer, world size, batch, threads and the flags
// that do not follow the world size. Order: "single" first, then by trainer,
// world size and batch. Runs that cannot be measured are left out, and why is
// appended to `left_out`.
std::vector<Cell> GroupIntoCells(absl::Span<const RunTrace> runs,
                                 const ThroughputConfig& config,
                                 std::vector<std::string>* left_out);

}  // namespace rankwise

#endif  // ANALYSIS_CELL_H_
