// What a rank of a pipeline hands to another one and gets from it, whatever
// carries it.
#ifndef RANKWISE_PARALLEL_PIPELINE_MAIL_H_
#define RANKWISE_PARALLEL_PIPELINE_MAIL_H_

#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/pipeline/step_in_flight.h"

namespace c10d {
class Work;
}  // namespace c10d

namespace rankwise {

// One message, contiguous. For a receive: the buffer that is written to. Who
// carries it owns what is still read or written, so that a transfer that
// nobody will wait for may be dropped.
struct P2POp {
  P2POp(bool is_send, int peer, int tag, at::Tensor tensor);
  P2POp();
  ~P2POp();
  P2POp(P2POp&&) noexcept;
  P2POp& operator=(P2POp&&) noexcept;

  bool is_send = false;
  int peer = 0;  // rank within the pipeline
  int tag = 0;   // the same on both sides
  at::Tensor tensor;
  c10::intrusive_ptr<c10d::Work> work;  // of a process group, once started
};

// Of one rank. Not thread-safe. Throws what a failed message throws.
class Mail {
 public:
  Mail(int rank, c10::Device device) : rank_(rank), device_(device) {}
  virtual ~Mail();
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  int rank() const { return rank_; }
  c10::Device device() const { return device_; }

  // Starts it, after what the device's current stream has been given. Two ranks
  // start what passes between them in the same order.
  virtual void Start(P2POp& transfer) = 0;

  // Blocks until the transfer is complete (on an accelerator: the current
  // stream, not the host). Notes how long that took.
  void Wait(P2POp& transfer);

  // Every Wait since the last call, in order.
  std::vector<TimedWait> TakeWaits() { return std::exchange(waits_, {}); }

 private:
  virtual void Complete(P2POp& transfer) = 0;

  const int rank_;
  const c10::Device device_;
  std::vector<TimedWait> waits_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_MAIL_H_
