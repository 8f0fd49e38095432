// For tests of loops that must not wait for the device.
#ifndef RANKWISE_PARALLEL_DEVICE_REFUSE_WAITS_FOR_TEST_H_
#define RANKWISE_PARALLEL_DEVICE_REFUSE_WAITS_FOR_TEST_H_

namespace rankwise {

// While it exists, on any thread: an operator that would make the host wait for
// a GPU throws c10::Error instead (PyTorch's sync debug mode, "error";
// torch.cuda.set_sync_debug_mode lists what that misses: waits for events, and
// waits in other libraries). No effect without CUDA.
class RefuseWaits {
 public:
  RefuseWaits();
  ~RefuseWaits();
  RefuseWaits(const RefuseWaits&) = delete;
  RefuseWaits& operator=(const RefuseWaits&) = delete;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_REFUSE_WAITS_FOR_TEST_H_
