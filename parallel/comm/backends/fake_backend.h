// A c10d backend with known costs: any world size inside one process.
//
// Two ways to use it:
//
// 1. MakeFakeBackend(rank, world_size, config): one rank, alone. Every other
//    rank is assumed to make the same calls with the same data:
//      all_reduce, reduce   sum: x * world_size; avg, min, max, band, bor: x;
//                           product: x ^ world_size;
//                           bxor: x if world_size is odd, else 0
//      broadcast            leaves the tensor, whoever the root is
//      all_gather, gather   every slot is a copy of this rank's input
//      reduce_scatter       this rank's slice of the input, reduced as above
//      scatter              on the root: this rank's slice; else left as it is
//      all_to_all           every slot is a copy of input slice `rank` (of its
//                           first elements where the split sizes differ)
//      send                 goes nowhere, at the cost of a message
//      recv                 takes the last message this rank sent under the
//                           same tag if that has the same number of elements;
//                           else the buffer is left as it is
// 2. FakeWorld: `world_size` ranks as threads of one process, which really
//    exchange their data, at the same costs. A call that other ranks answer
//    with a different one fails on all of them; one that a rank never makes
//    fails after the timeout with the missing ranks' numbers.
//
// Cost of a call, from the moment the rank enters it:
//     lateness + alpha + beta * bytes + tail
// where lateness is the largest skew (+ straggler delay) of the ranks that take
// part, all of them for a collective and two for send/recv, and bytes is the
// size of the whole buffer as nccl-tests counts it: of the output for
// all_gather, of the input for reduce_scatter and all_to_all, 0 for a barrier.
// The tail is paid by every tail_every-th collective, and never by send/recv.
// Collectives follow each other (one channel), and so do the messages from one
// rank to another; a send completes without its recv. Moving the data happens
// within that time; where moving takes longer, the call takes longer.
//
// Calls return at once and complete on a thread of the backend's own, so that
// communication overlaps computation as with gloo or nccl. CPU tensors only.
//
// Ranks whose threads are in virtual time (steady_time.h) do not sleep for the
// costs: their clocks move by them, exactly.
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

// The injected costs. The default costs nothing.
struct FakeBackendConfig {
  double alpha_us = 0;          // latency of every call
  double beta_ns_per_byte = 0;  // inverse bandwidth; 1 is 1 GB/s
  // How late each rank enters every call; ranks beyond the end are punctual.
  std::vector<double> skew_us = {};
  int straggler_rank = -1;  // one rank that is later still; -1: none
  double straggler_us = 0;
  // Every tail_every-th collective (the first is number 1) takes tail_us
  // longer; 0: none does.
  int tail_every = 0;
  double tail_us = 0;
  // FakeWorld only: how long a call waits for the other ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// The costs as a group of `ranks` sees them, which are numbered anew in it.
FakeBackendConfig FakeCostsOf(const FakeBackendConfig& config,
                              const std::vector<int>& ranks);

// Seconds by which `rank` enters every call late.
double FakeLatenessSeconds(const FakeBackendConfig& config, int rank);

// Seconds that a call takes in addition to lateness and tail: alpha + beta *
// bytes.
double FakeCostSeconds(const FakeBackendConfig& config, double bytes);

// Seconds that collective `number`, from 1, takes longer than others.
double FakeTailSeconds(const FakeBackendConfig& config, uint64_t number);

// One rank, alone, among `world_size`. Thread-safe as gloo's backend is: calls
// may come from any thread, but their order must be the program's.
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
