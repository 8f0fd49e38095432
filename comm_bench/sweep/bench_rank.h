// One rank as the benchmark's modes see it.
#ifndef RANKWISE_COMM_BENCH_SWEEP_BENCH_RANK_H_
#define RANKWISE_COMM_BENCH_SWEEP_BENCH_RANK_H_

#include <atomic>
#include <string>

#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/control.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {
class Communicator;
}  // namespace rankwise

namespace rankwise::comm_bench {

class NcclLogSwitch;
class Output;

struct BenchRank {
  Communicator* comm = nullptr;  // null where ranks are threads (fake)
  c10::intrusive_ptr<c10d::ProcessGroup> group;  // of all ranks
  Control* control = nullptr;
  Output* output = nullptr;
  c10::Device device = c10::kCPU;
  std::string backend;  // "gloo"
  bool on_one_host = true;
  // Null: NCCL's log cannot be read here.
  NcclLogSwitch* nccl_log = nullptr;
  // Of a copy between two GPUs, the slowest pair; 0 unknown. Same on all ranks.
  double peer_bytes_per_second = 0;
  const std::atomic<bool>* stop = nullptr;  // set by Ctrl-C

  int rank() const { return control->rank(); }
  int world_size() const { return control->world_size(); }
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_BENCH_RANK_H_
