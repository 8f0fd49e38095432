#ifndef RANKWISE_SAMPLERS_LOADER_DEVICE_COPIER_H_
#define RANKWISE_SAMPLERS_LOADER_DEVICE_COPIER_H_

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <utility>

#include "samplers/datasets/dataset.h"

namespace rankwise {

// Copies batches to a device on a stream of its own, beside the work on earlier
// ones. The host waits for no copy of page-locked memory: the stream that uses
// a batch does, and neither the batch's memory nor the page-locked one is given
// to others before both are through with it.
class DeviceCopier {
 public:
  // `non_blocking`: the batches lie in page-locked memory; else Begin waits for
  // the copy. Not for a CPU.
  DeviceCopier(c10::Device device, bool non_blocking);

  // A batch on its way.
  class Copy {
   private:
    friend class DeviceCopier;
    Copy(Batch batch, c10::Event done)
        : batch_(std::move(batch)), done_(std::move(done)) {}
    Batch batch_;
    c10::Event done_;
  };

  // Gives the copy to the copying stream.
  Copy Begin(const Batch& batch) const;

  // The batch for the device's current stream: what that stream is given from
  // now on waits for the copy.
  Batch Use(Copy copy) const;

 private:
  at::Tensor ToDevice(const at::Tensor& tensor) const;

  const c10::Device device_;
  const bool non_blocking_;
  const c10::Stream stream_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_LOADER_DEVICE_COPIER_H_
