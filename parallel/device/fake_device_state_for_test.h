// Calls from the fake device's tensors to its streams.
#ifndef RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_STATE_FOR_TEST_H_
#define RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_STATE_FOR_TEST_H_

#include "c10/core/Stream.h"

namespace rankwise {

// Records a copy to the device on `stream`.
void NoteFakeCopy(const c10::Stream& stream);
// Records a Tensor::record_stream on `stream`.
void NoteFakeRecord(const c10::Stream& stream);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_STATE_FOR_TEST_H_
