// Messages between the ranks of one pipeline, over a process group.
#ifndef RANKWISE_PARALLEL_PIPELINE_CHANNEL_H_
#define RANKWISE_PARALLEL_PIPELINE_CHANNEL_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

// One message, contiguous. For a receive: the buffer that is written to. Works
// own what they still read or write, so that a transfer that nobody will wait
// for may be dropped.
struct Transfer {
  bool is_send = false;
  int peer = 0;  // rank within the pipeline
  int tag = 0;
  at::Tensor tensor;
  c10::intrusive_ptr<c10d::Work> work;  // null until started
};

// How long a rank was blocked for one message.
struct MessageWait {
  int64_t bytes = 0;
  double seconds = 0;
};

// Not thread-safe. Throws what the process group throws.
class Channel {
 public:
  // `ranks[i]`: the rank within `group` of the pipeline's rank i.
  Channel(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks,
          int rank, c10::Device device);
  ~Channel();

  int rank() const { return rank_; }
  int num_ranks() const { return static_cast<int>(ranks_.size()); }
  c10::Device device() const { return device_; }

  // Starts all of them, as one operation where the backend can (NCCL), so that
  // their order does not matter.
  void Start(std::vector<Transfer*> batch);
  void Start(Transfer& transfer) { Start({&transfer}); }

  // Blocks until the transfer is complete (CUDA: makes the current stream
  // wait), and forgets its work. Notes how long that took.
  void Wait(Transfer& transfer);

  // Every rank's `values`, by rank; as many on each. Called by all ranks.
  std::vector<std::vector<double>> Gather(const std::vector<double>& values);

  // Every Wait since the last call, in order.
  std::vector<MessageWait> TakeWaits() { return std::exchange(waits_, {}); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<int> ranks_;
  int rank_;
  c10::Device device_;
  bool coalesces_ = false;
  std::vector<MessageWait> waits_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_CHANNEL_H_
