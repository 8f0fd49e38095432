// The streams that pipeline stages compute on.
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_STREAMS_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_STREAMS_H_

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/Stream.h"
#include "parallel/pipeline/engine/executor.h"

namespace rankwise {

// Tells the allocator that `stream` works with `tensor`, too: its memory is not
// given to anybody else before `stream` has done what it was given by the time
// of the tensor's end. Nothing on a CPU.
void RecordUse(const at::Tensor& tensor, const c10::Stream& stream);

// Each stage computes on a stream of its own, so that stages of one device
// overlap where the schedule lets them. Stages that share a parameter share
// their streams: autograd adds up a parameter's gradient without asking who
// else does. Between Begin and End the streams belong to the step; before and
// after, everything is ordered by the devices' current streams, so that what
// one side allocated may be read and freed by the other. On a CPU there are no
// streams, and all of this does nothing. Not thread-safe.
class StageStreams {
 public:
  // `devices[i]` is where stages[i] runs; stages that are null are another
  // process's.
  StageStreams(const std::vector<Stage*>& stages,
               std::vector<c10::Device> devices);

  // For a c10::MultiStreamGuard: with it autograd and all operators of `stage`
  // go to its stream. Empty on a CPU.
  const std::vector<c10::Stream>& Of(size_t stage) const {
    return of_stage_[stage];
  }
  // The stage's stream on its own device.
  c10::Stream HomeOf(size_t stage) const;

  // Where buffers for messages to `device` are allocated and filled: next to
  // the stages, so that a message need not wait for a computation. Empty on a
  // CPU.
  const std::vector<c10::Stream>& Arrivals(c10::Device device) const;

  // Another stream of the device's pool, which begins and ends with the
  // stages'. Not for a CPU.
  c10::Stream Add(c10::Device device);

  // All streams wait for what the devices' current streams have been given.
  void Begin() const;
  // The devices' current streams wait for all streams.
  void End() const;

 private:
  std::vector<c10::Device> devices_;                // of the stages
  std::vector<std::vector<c10::Stream>> of_stage_;  // [stage]
  // By accelerator; for each that has a stage here.
  std::unordered_map<c10::Device, std::vector<c10::Stream>> arrivals_;
  std::vector<c10::Stream> all_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_STREAMS_H_
