// Messages between the ranks of one pipeline: the form in which tensors travel,
// the buffers they arrive in, what carries them, and what they cost.
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_TRANSPORT_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_TRANSPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"
#include "c10/core/Stream.h"
#include "parallel/comm/group.h"
#include "parallel/device/device_event.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/engine/stage_streams.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {

// The bytes of `tensor` as a contiguous tensor of its type without a graph; a
// copy only where they are not so already. Four-dimensional tensors
// [n, c, h, w] travel as [n, h, w, c]: convolutions compute in channels_last,
// and whoever receives that computes to the last bit what one process would.
at::Tensor ToWire(const at::Tensor& tensor);

// The tensor of that shape whose bytes `wire` holds. Shares them.
at::Tensor FromWire(const at::Tensor& wire);

std::vector<int64_t> WireShape(std::vector<int64_t> shape);

// Buffers to receive into, used again once nothing else refers to them. The
// graph of a stage holds on to its input until the backward is done, so that
// as many exist as micro-batches were in flight at once. On an accelerator,
// where the host does not see when a buffer has been read, its allocator sees
// to that, and to using memory again. Not thread-safe.
class WireBuffers {
 public:
  // `filled`: with small finite numbers, for a computation that goes on without
  // what should have arrived; else the content is any.
  explicit WireBuffers(c10::Device device, bool filled = false)
      : device_(device), filled_(filled) {}

  // Free again when all tensors that share it are gone.
  at::Tensor Take(const std::vector<int64_t>& wire_shape,
                  at::ScalarType type = at::kFloat);

  size_t count() const { return buffers_.size(); }

 private:
  c10::Device device_;
  bool filled_;
  std::vector<at::Tensor> buffers_;
};

// A point-to-point operation: one message, contiguous. For a receive: the
// buffer that is written to. The transport owns what is still read or written,
// so that an operation that nobody will wait for may be dropped.
struct P2POp {
  bool is_send = false;
  int peer = 0;  // rank within the pipeline
  int tag = 0;   // the same on both sides
  at::Tensor tensor;
  c10::intrusive_ptr<c10d::Work> work = {};  // of a process group, once started
};

// Carries the messages of one rank. Not thread-safe. Throws what a failed
// message throws.
class Transport {
 public:
  Transport(int rank, c10::Device device) : rank_(rank), device_(device) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  c10::Device device() const { return device_; }

  // Starts it, after what the device's current stream has been given. Two ranks
  // start what passes between them in the same order.
  virtual void Start(P2POp& op) = 0;

  // Blocks until the operation is complete (on an accelerator: the current
  // stream, not the host). Notes how long that took.
  void Wait(P2POp& op);

  // Every Wait since the last call, in order.
  std::vector<MessageWait> TakeWaits() { return std::exchange(waits_, {}); }

 private:
  virtual void Complete(P2POp& op) = 0;

  const int rank_;
  const c10::Device device_;
  std::vector<MessageWait> waits_;
};

// Over the process group of the pipeline's ranks, by place in it. Messages go
// one by one, never coalesced: ProcessGroupNCCL matches by order, not by tag,
// and has a communicator and a stream for every two ranks that exchange single
// messages, but runs what is coalesced on the communicator of the whole group.
// A batch on one side would wait there for a message that the other side, where
// it was no batch, sends elsewhere.
class GroupTransport : public Transport {
 public:
  GroupTransport(const Group& pipeline, c10::Device device);

  int num_ranks() const { return group_.size(); }

  void Start(P2POp& op) override;

  // Sends `mine` and returns the peer's, of the same shape and type. Both call
  // it; `tag` is not in use.
  at::Tensor Exchange(int peer, const at::Tensor& mine, int tag = 0);

  // Overwrites every rank's `tensor` with rank `root`'s. All ranks call it,
  // while nothing else is in flight.
  void Broadcast(const at::Tensor& tensor, int root);

  // NCCL connects two ranks at their first message, and blocks the host of the
  // one until the other has come as far. Here the pairs of ranks that
  // `schedule` has messages between meet in one order on all ranks, which
  // cannot end in a cycle as the order of messages could. Called by all ranks;
  // each pair meets once. Nothing on a CPU.
  void Connect(const Schedule& schedule);

 private:
  void Complete(P2POp& op) override;

  const Group group_;
  std::set<int> connected_;  // peers
};

// Between the ranks of a pipeline that runs in one process: copies from one
// device to another. A copy starts when both sides have started their
// operation, on a stream of the sending device that does nothing else, after
// what had made the message. Whoever waits for either side, waits on its own
// stream. Used by one thread, which starts both sides before it waits for one.
class LocalTransports {
 public:
  // `devices`: by rank. On accelerators the copies' streams are added to
  // `streams`, which outlives this.
  LocalTransports(std::vector<c10::Device> devices, StageStreams& streams);
  ~LocalTransports();

  std::vector<Transport*> All() const;  // by rank

 private:
  class OfRank;
  using Address = std::tuple<int, int, int>;  // from, to, tag
  struct Copy {
    at::Tensor from, to;
    std::optional<DeviceEvent> sent, arrived;
    int waits = 0;  // of its two sides
  };

  void Run(const Address& address, Copy& copy);

  StageStreams& streams_;
  std::vector<std::unique_ptr<OfRank>> transports_;   // by rank
  std::vector<std::vector<c10::Stream>> departures_;  // by rank; empty on a CPU
  std::map<Address, Copy> copies_;
};

// Replaces the gradient of `weight`, zeros where it has none, by the sum of it
// and that of rank `peer` of the pipeline, the same bits on both, for a weight
// that the first and the last stage share (tied embeddings). Both call it;
// `tag` must be the same, and used for nothing else.
void AddUpSharedGradient(const Group& pipeline, int peer, int tag,
                         const at::Tensor& weight);

// Times messages to and fro between ranks i and i + 1 of the pipeline, of 4
// bytes and of `message_bytes` (an activation's size, of which at most 4 MiB
// are used), and fits alpha + bytes * beta through the medians of the half
// round trips. Returns the mean over all pairs of neighbours, the same on every
// rank: the fill of a pipeline crosses each of them once. Takes about 30 round
// trips per pair, two pairs after another. Zero for one rank.
//
// Called by all ranks of the pipeline. Throws what a failed send or receive
// throws.
LinkCosts MeasureLink(const Group& pipeline, c10::Device device,
                      int64_t message_bytes);

// The same where one process runs all ranks, by copies from the device of rank
// i to that of rank i + 1. Times are the devices'; the host waits.
LinkCosts MeasureCopies(const std::vector<c10::Device>& devices,
                        int64_t message_bytes);

// With an even number of values the mean of the middle two; NaN without values.
double Median(std::vector<double> values);

// The line through the two points; neither cost is below zero.
LinkCosts FitLink(int64_t small_bytes, double small_seconds,
                  int64_t large_bytes, double large_seconds);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_TRANSPORT_H_
