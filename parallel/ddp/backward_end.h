// When backward's own work ends on a device, apart from what waits for
// communication.
#ifndef RANKWISE_PARALLEL_DDP_BACKWARD_END_H_
#define RANKWISE_PARALLEL_DDP_BACKWARD_END_H_

#include <memory>
#include <optional>

#include "c10/core/Device.h"
#include "parallel/device/moment.h"

namespace at {
class Tensor;
}

namespace rankwise {

// Autograd ends a backward with callbacks, in the order in which they were
// queued, on the streams of whoever called backward(). c10d::Reducer queues one
// when the last bucket is launched, which makes the stream wait for all buckets
// (finalize_backward). What is queued when backward begins comes before it:
// after the gradients and before the waiting.
class BackwardEnd {
 public:
  explicit BackwardEnd(c10::Device device) : device_(device) {}

  // Before backward(), which starts from `output`; forgets the one before.
  void Watch(const at::Tensor& output);

  // After backward(): the moment after the device's own work; none where it was
  // not watched. Once.
  std::optional<Moment> Take();

 private:
  const c10::Device device_;
  std::shared_ptr<std::optional<Moment>> end_;  // null: not watched
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_BACKWARD_END_H_
