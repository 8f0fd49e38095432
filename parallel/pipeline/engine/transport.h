// Messages between the ranks of one pipeline: tensor layout, receive buffers,
// transports, and link costs.
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

// Returns `tensor` detached and contiguous; copies only if necessary.
// Four-dimensional tensors [n, c, h, w] travel as [n, h, w, c]: convolutions
// compute in channels_last, and the receiver's results are then bitwise those
// of a single process.
at::Tensor ToWire(const at::Tensor& tensor);

// Inverts ToWire. Shares the storage of `wire`.
at::Tensor FromWire(const at::Tensor& wire);

std::vector<int64_t> WireShape(std::vector<int64_t> shape);

// Receive buffers, reused once nothing else refers to them. A stage's graph
// holds its input until the backward is done, so there are as many buffers as
// micro-batches were in flight at once. On an accelerator the host does not
// know when a buffer has been read; there the device's allocator handles reuse.
// Not thread-safe.
class WireBuffers {
 public:
  // `filled`: with small finite numbers, for computation without the received
  // data; otherwise uninitialised.
  explicit WireBuffers(c10::Device device, bool filled = false)
      : device_(device), filled_(filled) {}

  // Returns a buffer; it is reused once all tensors sharing it are freed.
  at::Tensor Take(const std::vector<int64_t>& wire_shape,
                  at::ScalarType type = at::kFloat);

  size_t count() const { return buffers_.size(); }

 private:
  c10::Device device_;
  bool filled_;
  std::vector<at::Tensor> buffers_;
};

// A point-to-point operation: one contiguous message, for a receive the
// destination buffer. The transport owns tensors that are still read or
// written, so an operation may be dropped without waiting for it.
struct P2POp {
  bool is_send = false;
  int peer = 0;  // rank in the pipeline
  int tag = 0;   // equal on both sides
  at::Tensor tensor;
  c10::intrusive_ptr<c10d::Work> work = {};  // of a process group, once started
};

// Transfers the messages of one rank. Not thread-safe. Rethrows the error of a
// failed message.
class Transport {
 public:
  Transport(int rank, c10::Device device) : rank_(rank), device_(device) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  c10::Device device() const { return device_; }

  // Starts the operation, ordered after the work on the device's current
  // stream. Both ranks of a pair must start their operations in the same order.
  virtual void Start(P2POp& op) = 0;

  // Blocks until the operation is complete (on an accelerator, blocks the
  // current stream, not the host). Records the duration.
  void Wait(P2POp& op);

  // Returns every Wait since the last call, in order.
  std::vector<MessageWait> TakeWaits() { return std::exchange(waits_, {}); }

 private:
  virtual void Complete(P2POp& op) = 0;

  const int rank_;
  const c10::Device device_;
  std::vector<MessageWait> waits_;
};

// Transport over the process group of the pipeline's ranks. Messages are never
// coalesced: ProcessGroupNCCL matches by order, not by tag. It has a
// communicator and a stream per pair of ranks for single messages but runs
// coalesced ones on the whole group's communicator, where a batch would wait
// for a message that the peer sends singly on another one.
class GroupTransport : public Transport {
 public:
  GroupTransport(const Group& pipeline, c10::Device device);

  int num_ranks() const { return group_.size(); }

  void Start(P2POp& op) override;

  // Sends `mine` and returns the peer's tensor of the same shape and type. Both
  // ranks must call it; `tag` must not be in use.
  at::Tensor Exchange(int peer, const at::Tensor& mine, int tag = 0);

  // Overwrites every rank's `tensor` with rank `root`'s. All ranks must call it
  // while nothing is in flight.
  void Broadcast(const at::Tensor& tensor, int root);

  // NCCL connects two ranks at their first message and blocks the host of one
  // until the other arrives. This connects all pairs that exchange messages in
  // `schedule`, in the same order on all ranks, which cannot cause a cycle of
  // waits as the message order could. All ranks must call it; each pair
  // connects once. Does nothing on a CPU.
  void Connect(const Schedule& schedule);

 private:
  void Complete(P2POp& op) override;

  const Group group_;
  std::set<int> connected_;  // peers
};

// Transport between ranks of a pipeline in one process: copies between devices.
// A copy starts when both sides have started their operation, on a dedicated
// stream of the sending device, after the computation of the message. A waiting
// side blocks its own stream. Used by one thread, which starts both sides
// before it waits for either.
class LocalTransports {
 public:
  // `devices`: by rank. On accelerators, adds the copies' streams to `streams`,
  // which must outlive the object.
  LocalTransports(std::vector<c10::Device> devices, StageStreams& streams);
  ~LocalTransports();

  std::vector<Transport*> All() const;  // by rank

 private:
  class OfRank;
  using Address = std::tuple<int, int, int>;  // from, to, tag
  struct Copy {
    at::Tensor from, to;
    std::optional<DeviceEvent> sent, arrived;
    int waits = 0;  // by its two sides
  };

  void Run(const Address& address, Copy& copy);

  StageStreams& streams_;
  std::vector<std::unique_ptr<OfRank>> transports_;   // by rank
  std::vector<std::vector<c10::Stream>> departures_;  // by rank; empty on a CPU
  std::map<Address, Copy> copies_;
};

// Replaces the gradient of `weight` (zeros if undefined) by the sum with that
// of rank `peer` of the pipeline, bitwise equal on both: for a weight that the
// first and last stage share (tied embeddings). Both must call it; `tag` must
// be equal and otherwise unused.
void SumSharedGradient(const Group& pipeline, int peer, int tag,
                       const at::Tensor& weight);

// Times ping-pong messages between ranks i and i + 1 of the pipeline, of 4
// bytes and of `message_bytes` (an activation's size; at most 4 MiB are used),
// and fits alpha + bytes * beta through the medians of half the round-trip
// times. Returns the mean over all adjacent pairs, which the fill of a pipeline
// crosses once each; the same on every rank. Takes about 30 round trips per
// pair; a rank measures its two pairs one after the other. Zero for one rank.
//
// All ranks of the pipeline must call it. Rethrows a failed message's error.
LinkCosts MeasureLink(const Group& pipeline, c10::Device device,
                      int64_t message_bytes);

// As MeasureLink, if one process runs all ranks: measures copies from the
// device of rank i to that of rank i + 1. Times are the devices'; blocks the
// host.
LinkCosts MeasureCopies(const std::vector<c10::Device>& devices,
                        int64_t message_bytes);

// For an even number of values the mean of the middle two; NaN without values.
double Median(std::vector<double> values);

// Fits a line through the two points; neither cost is negative.
LinkCosts FitLink(int64_t small_bytes, double small_seconds,
                  int64_t large_bytes, double large_seconds);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_TRANSPORT_H_
