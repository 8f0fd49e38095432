// The configuration of the benchmark, and the rank that measures it.
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
  int in_flight = 1;  // calls started before the first wait
  bool cold = false;  // whether caches are overwritten before each iteration
  bool check = true;
  int launch = 0;
  // Whether seconds are between two events of the device's stream, instead of
  // the host's.
  bool events = false;
  bool graph = false;       // calls are captured, and iterations replay them
  bool registered = false;  // buffers are registered by the layer's library
  // Whether NCCL's choices are read, by `nccl_log` on the ranks that have one.
  // Equal on all ranks.
  bool choices = false;
  NcclLogSwitch* nccl_log = nullptr;
  GraphMaker make_graph = MakeDeviceGraph;
};

// Set from flags by comm_bench/flags; a binary without a flag uses its default.
struct BenchConfig {
  bool list = false;  // describe the collectives and exit

  // The sweep is the product of all lists.
  std::vector<const Collective*> collectives;
  std::vector<c10::ScalarType> dtypes = {c10::ScalarType::Float};
  std::vector<ReduceOp> ops = {ReduceOp::SUM};
  std::string place = "auto";  // auto (as in c10d's call), in, out, both
  std::vector<int64_t> sizes;  // bytes
  bool sizes_given = false;    // as a list, by --sizes
  // A list was given as "all": combinations that a collective does not support
  // are skipped instead of ending the run.
  bool skip_unsupported = false;
  int root = 0;
  // all_to_all_v: a traffic matrix's file, or the skew of the traffic
  std::string traffic_file;
  double traffic_skew = 0;
  // ranks per concurrent group; 0 for one group of all ranks
  int group_size = 0;
  // The groups are the lines of this mesh along `axis`. A sweep measures the
  // lines given by `lines` ("both": the first alone, and all); a replay repeats
  // their traffic. Empty if not given.
  std::vector<MeshAxis> mesh;
  std::string axis;
  std::string lines = "both";  // "one", "all"

  // MeasureOn (plan.h) sets the fields that depend on the device.
  MeasureConfig measure;
  std::string layer = "c10d";   // or "nccl", "mpi": directly by nccl.h, mpi.h
  std::string timing = "auto";  // "host", "events"
  bool nccl_choices = true;  // whether NCCL's algorithm and protocol are read
  // whether the ranks of --backend=fake use virtual time (steady_time.h)
  bool fake_virtual_time = false;
  // as in FakeBackendConfig
  std::vector<double> fake_skew_us;
  int fake_tail_every = 0;
  double fake_tail_us = 0;

  // overlap, units: the GEMM's rows and columns; replay, units: the trainer's
  // records
  int64_t gemm_size = 512;
  std::string replay_file;
  // units: bytes of each (if empty, those of replay_file), ZeRO stage, units
  // gathered ahead, and seconds of forward computation, one number for all
  // units or one each (if empty, none)
  std::vector<int64_t> units;
  int zero = 3;
  int prefetch = 1;
  std::vector<double> compute_seconds;

  // output files
  std::string record_file;
  std::string csv_file;
  int relaunch = 1;  // number of launches of all ranks; measure.launch is the
                     // index of this one

  // Returns --iterations, or `usual` without it.
  int64_t iterations_or(int64_t usual) const {
    const int64_t given = measure.timing.iterations;
    return given > 0 ? given : usual;
  }
};

// The rank on which a measurement runs.
struct BenchRank {
  Communicator* comm = nullptr;  // nullptr if ranks are threads (fake)
  // job ranks of this rank's group in the plan; empty if all
  std::vector<int> ranks;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  Control* group_control = nullptr;
  Control* control = nullptr;  // over all ranks
  Output* output = nullptr;
  c10::Device device = c10::kCPU;
  bool on_one_host = true;
  // nullptr if NCCL's log cannot be read
  NcclLogSwitch* nccl_log = nullptr;
  // copy between two GPUs, slowest pair; 0 if unknown; equal on all ranks
  double peer_bytes_per_second = 0;
  const std::atomic<bool>* stop = nullptr;  // set by Ctrl-C

  int rank() const { return control->rank(); }
  int world_size() const { return control->world_size(); }
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_CONFIG_H_
