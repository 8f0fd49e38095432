// The streams on which pipeline stages compute.
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

// Records that `stream` also uses `tensor`: the allocator does not reuse its
// memory until `stream` has completed the work enqueued when the tensor was
// freed. Does nothing on a CPU.
void RecordUse(const at::Tensor& tensor, const c10::Stream& stream);

// Each stage computes on its own stream, so that stages of one device overlap
// if the schedule permits. Stages that share a parameter share their streams,
// because autograd accumulates a parameter's gradient without synchronising
// with other users. Between Begin and End the streams belong to the step;
// before and after, the devices' current streams order everything, so that
// memory allocated on one side may be read and freed on the other. Does nothing
// on a CPU. Not thread-safe.
class StageStreams {
 public:
  // `devices[i]` is for stages[i], which is nullptr in other processes.
  StageStreams(const std::vector<Stage*>& stages,
               std::vector<c10::Device> devices);

  // Returns the streams for a c10::MultiStreamGuard under which autograd and
  // all operators of `stage` use its stream. Empty on a CPU.
  const std::vector<c10::Stream>& Of(size_t stage) const {
    return of_stage_[stage];
  }
  // Returns the stage's stream on its own device.
  c10::Stream HomeOf(size_t stage) const;

  // Returns the stream on which buffers for messages to `device` are allocated
  // and filled: separate from the stages', so that messages do not wait for
  // computation. Empty on a CPU.
  const std::vector<c10::Stream>& Arrivals(c10::Device device) const;

  // Returns another stream of the device's pool, with the same Begin and End as
  // the stages'. Not for a CPU.
  c10::Stream Add(c10::Device device);

  // Makes all streams wait for the work on the devices' current streams.
  void Begin() const;
  // Makes the devices' current streams wait for all streams.
  void End() const;

 private:
  std::vector<c10::Device> devices_;                // by stage
  std::vector<std::vector<c10::Stream>> of_stage_;  // by stage
  // By accelerator that has a stage in this process.
  std::unordered_map<c10::Device, std::vector<c10::Stream>> arrivals_;
  std::vector<c10::Stream> all_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_STREAMS_H_
