// What the benchmark is asked to measure, and the rank that measures it.
#ifndef RANKWISE_COMM_BENCH_SWEEP_CONFIG_H_
#define RANKWISE_COMM_BENCH_SWEEP_CONFIG_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"
#include "c10/util/intrusive_ptr.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/nccl/nccl_log.h"
#include "comm_bench/timing/timing.h"
#include "parallel/comm/control.h"
#include "parallel/comm/mesh.h"
#include "parallel/device/graph.h"

namespace rankwise::comm_bench {

class Output;

struct MeasureConfig {
  TimingConfig timing;
  int in_flight = 1;  // calls started before the first is waited for
  bool cold = false;  // caches are overwritten before each iteration
  bool check = true;
  int launch = 0;
  // Seconds are those between two events of the device's stream, not the
  // host's.
  bool events = false;
  bool graph = false;       // calls are recorded, and iterations replay them
  bool registered = false;  // buffers are registered by the layer's library
  // What NCCL chooses is read, by `nccl_log` on the ranks that have one. The
  // same on all ranks.
  bool choices = false;
  NcclLogSwitch* nccl_log = nullptr;
  GraphMaker make_graph = MakeDeviceGraph;
};

// Filled from flags by comm_bench/flags; a binary without a flag has its
// default.
struct BenchConfig {
  bool list = false;  // name the collectives, and measure nothing

  // What is swept: the product of all lists.
  std::vector<const Collective*> collectives;
  std::vector<c10::ScalarType> dtypes = {c10::ScalarType::Float};
  std::vector<ReduceOp> ops = {ReduceOp::SUM};
  std::string place = "auto";  // auto (as c10d's call does it), in, out, both
  std::vector<int64_t> sizes;  // bytes
  bool sizes_given = false;    // as a list, by --sizes
  // A list was given as "all": what a collective refuses is left out instead of
  // ending the run.
  bool skip_unsupported = false;
  int root = 0;
  // all_to_all_v: a traffic matrix's file, or how skewed the traffic is.
  std::string traffic_file;
  double traffic_skew = 0;
  // Ranks of each of the groups that run at the same time; 0: one group of all.
  int group_size = 0;
  // The groups are the lines of this mesh along `axis`, which a sweep measures
  // by which lines ("both": the first alone, and all) and whose traffic a
  // replay takes; empty: not given.
  std::vector<MeshAxis> mesh;
  std::string axis;
  std::string lines = "both";  // "one", "all"

  // How it is measured. What a device decides of it, is filled in by
  // MeasureOn (plan.h).
  MeasureConfig measure;
  std::string layer = "c10d";   // or "nccl", "mpi": nccl.h, mpi.h itself
  std::string timing = "auto";  // "host", "events"
  bool nccl_choices = true;     // NCCL's algorithm and protocol are read
  // The ranks of --backend=fake are in virtual time (steady_time.h).
  bool fake_virtual_time = false;
  // As FakeBackendConfig's.
  std::vector<double> fake_skew_us;
  int fake_tail_every = 0;
  double fake_tail_us = 0;

  // Of overlap and units: the GEMM's rows and columns; of replay and units: the
  // trainer's records.
  int64_t gemm_size = 512;
  std::string replay_file;
  // Of units: bytes of each, empty: those of replay_file; the stage of ZeRO;
  // units that are gathered ahead; and what forward computes, one number for
  // all units or one for each, empty: nothing.
  std::vector<int64_t> units;
  int zero = 3;
  int prefetch = 1;
  std::vector<double> compute_seconds;

  // Where it goes.
  std::string record_file;
  std::string csv_file;
  int relaunch = 1;  // times that all ranks are started; measure.launch says
                     // which of them this is

  // --iterations, or `usual` without it.
  int64_t iterations_or(int64_t usual) const {
    const int64_t given = measure.timing.iterations;
    return given > 0 ? given : usual;
  }
};

// What a measurement knows about the rank on which it runs.
struct BenchRank {
  Communicator* comm = nullptr;  // null where ranks are threads (fake)
  // Of `ranks`: this rank's group of those that the plan names; empty: all.
  std::vector<int> ranks;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  Control* group_control = nullptr;
  Control* control = nullptr;  // of all ranks
  Output* output = nullptr;
  c10::Device device = c10::kCPU;
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

#endif  // RANKWISE_COMM_BENCH_SWEEP_CONFIG_H_
