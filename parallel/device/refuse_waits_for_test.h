// For tests of loops that must not wait for the device.
#ifndef RANKWISE_PARALLEL_DEVICE_REFUSE_WAITS_FOR_TEST_H_
#define RANKWISE_PARALLEL_DEVICE_REFUSE_WAITS_FOR_TEST_H_

namespace rankwise {

// While it lives, on any thread: an operator that would make the host wait for
// a GPU throws c10::Error instead (PyTorch's sync debug mode, "error"; see
// torch.cuda.set_sync_debug_mode for what that does not see: waiting for
// events, and what other libraries do). Nothing without CUDA.
class RefuseWaits {
 public:
  RefuseWaits();
  ~RefuseWaits();
  RefuseWaits(const RefuseWaits&) = delete;
  RefuseWaits& operator=(const RefuseWaits&) = delete;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_REFUSE_WAITS_FOR_TEST_H_
