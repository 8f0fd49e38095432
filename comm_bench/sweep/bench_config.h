// What the benchmark is asked to measure. Filled from flags by
// bench_flags.h.
#ifndef RANKWISE_COMM_BENCH_SWEEP_BENCH_CONFIG_H_
#define RANKWISE_COMM_BENCH_SWEEP_BENCH_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "c10/core/ScalarType.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/sweep/measure.h"

namespace rankwise::comm_bench {

struct BenchConfig {
  // sweep, pairs, new_group, ladder, overlap or replay.
  std::string mode = "sweep";

  // What is swept: the product of all lists.
  std::vector<const Collective*> collectives;
  std::vector<c10::ScalarType> dtypes = {c10::ScalarType::Float};
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  std::string place = "auto";  // auto (as c10d's call does it), in, out, both
  std::vector<int64_t> sizes;  // bytes
  bool sizes_given = false;    // as a list: --sizes
  // A list was given as "all": what a collective refuses is left out instead of
  // ending the run.
  bool lenient = false;
  int root = 0;
  // all_to_all_v: a traffic matrix's file, or how skewed the traffic is.
  std::string traffic_file;
  double traffic_skew = 0;
  // Ranks of each of the groups that run at the same time; 0: one group of all.
  int group_size = 0;

  // How it is measured. What a device decides of it, is filled in by
  // MeasureOn (measure_on.h).
  MeasureConfig measure;
  std::string layer = "c10d";   // or "nccl": nccl.h itself
  std::string timing = "auto";  // "host", "events"
  bool nccl_choices = true;     // NCCL's algorithm and protocol are asked for
  // The ranks of --backend=fake are in virtual time (virtual_time.h).
  bool fake_virtual_time = false;

  // Of overlap: the GEMM's rows and columns; of replay: the trainer's records.
  int64_t gemm_size = 512;
  std::string replay_file;

  // Where it goes.
  std::string record_file;
  std::string csv_file;
  int relaunch = 1;  // times that all ranks are started; measure.launch says
                     // which of them this is
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_BENCH_CONFIG_H_
