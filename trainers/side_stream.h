// A stream beside the device's default one, which cannot be recorded into a
// graph and which what is recorded must not have to wait for.
#ifndef RANKWISE_TRAINERS_SIDE_STREAM_H_
#define RANKWISE_TRAINERS_SIDE_STREAM_H_

#include <c10/core/Device.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace rankwise {

// While it lives, all that this thread gives to the device goes there. Wants to
// be there before the model is built: autograd keeps the stream on which it
// first met a parameter.
class SideStream {
 public:
  // Does nothing where not `wanted`, or on a CPU.
  SideStream(c10::Device device, bool wanted) {
    if (!wanted || device.is_cpu()) return;
    const c10::impl::VirtualGuardImpl guard(device.type());
    stream_.reset_stream(
        guard.getStreamFromGlobalPool(device, /*isHighPriority=*/false));
  }

 private:
  c10::OptionalStreamGuard stream_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_SIDE_STREAM_H_
