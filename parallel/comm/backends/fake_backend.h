// A c10d backend with known costs: any world size inside one process.
//
// Two ways to use it:
//
// 1. MakeFakeBackend(rank, world_size, config): one rank, alone. Every other
//    rank is assumed to make the same calls with the same data:
//      all_reduce, reduce   sum: x * world_size; avg, min, max, band, bor: x;
//                           product: x ^ world_size;
//                           bxor: x if world_size is odd, else 0
//      broadcast            leaves the tensor, for any root
//      all_gather, gather   every slot is a copy of this rank's input
//      reduce_scatter       this rank's slice of the input, reduced as above
//      scatter              on the root: this rank's slice; elsewhere unchanged
//      all_to_all           every slot is a copy of input slice `rank` (of its
//                           first elements if the split sizes differ)
//      send                 stores the message, at the cost of a message
//      recv                 copies the last message that this rank sent with
//      the
//                           same tag if it has the same number of elements;
//                           otherwise leaves the buffer unchanged
// 2. FakeWorld: `world_size` ranks as threads of one process, which exchange
//    their data, at the same costs. A collective that differs between ranks
//    fails on all of them; one that a rank never calls fails after the timeout,
//    with the numbers of the missing ranks.
//
// Cost of a call, from the time at which the rank enters it:
//     lateness + alpha + beta * bytes + tail
// where lateness is the largest skew (+ straggler delay) of the participating
// ranks (all for a collective, two for send/recv), and bytes is the size of the
// whole buffer as nccl-tests counts it: of the output for all_gather, of the
// input for reduce_scatter and all_to_all, 0 for a barrier. The tail is added
// to every tail_every-th collective, and never to send/recv. Collectives run
// one after another (one channel), and so do the messages from one rank to
// another; a send completes without its recv. Data moves within that time; if
// moving takes longer, the call takes longer.
//
// Calls return at once and complete on the backend's own thread, so that
// communication overlaps computation as with gloo or nccl. CPU tensors only.
//
// Ranks whose threads are in virtual time (steady_time.h) do not sleep: their
// clocks advance by exactly the costs.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "c10/util/intrusive_ptr.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

// The injected costs; zero by default.
struct FakeBackendConfig {
  double alpha_us = 0;          // latency of every call
  double beta_ns_per_byte = 0;  // inverse bandwidth; 1 is 1 GB/s
  // Delay with which each rank enters every call; 0 for ranks beyond the end.
  std::vector<double> skew_us = {};
  int straggler_rank = -1;  // rank with an additional delay; -1 if none
  double straggler_us = 0;
  // Every tail_every-th collective (the first is number 1) takes tail_us
  // longer; none if 0.
  int tail_every = 0;
  double tail_us = 0;
  // FakeWorld only: maximum wait of a call for the other ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// Returns the costs for a group of `ranks`, with the group's rank numbers.
FakeBackendConfig FakeCostsOf(const FakeBackendConfig& config,
                              const std::vector<int>& ranks);

// Returns the delay in seconds with which `rank` enters every call.
double FakeLatenessSeconds(const FakeBackendConfig& config, int rank);

// Returns a call's seconds besides lateness and tail: alpha + beta * bytes.
double FakeCostSeconds(const FakeBackendConfig& config, double bytes);

// Returns the additional seconds of collective `number`, counted from 1.
double FakeTailSeconds(const FakeBackendConfig& config, uint64_t number);

// Creates one of `world_size` ranks, without the others. Thread-safe like
// gloo's backend: any thread may call it, but in the program's order.
c10::intrusive_ptr<c10d::Backend> MakeFakeBackend(
    int rank, int world_size, const FakeBackendConfig& config);

// Wraps a backend as the CPU backend of a process group.
c10::intrusive_ptr<c10d::ProcessGroup> MakeFakeProcessGroup(
    const c10::intrusive_ptr<c10d::Backend>& backend);

class FakeExchange;

// Ranks as threads that exchange data. Example:
//
//   FakeWorld world(2, {.alpha_us = 50});
//   std::thread peer([&] { Train(MakeFakeProcessGroup(world.backend(1))); });
//   Train(MakeFakeProcessGroup(world.backend(0)));
//   peer.join();
//
// backend() may be called from any thread, once per rank; the backends may
// outlive the FakeWorld.
class FakeWorld {
 public:
  FakeWorld(int world_size, const FakeBackendConfig& config);
  ~FakeWorld();

  c10::intrusive_ptr<c10d::Backend> backend(int rank) const;

 private:
  const std::shared_ptr<FakeExchange> exchange_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_FAKE_BACKEND_H_
