// What the fake device's tensors tell its streams.
#ifndef RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_STATE_FOR_TEST_H_
#define RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_STATE_FOR_TEST_H_

#include "c10/core/Stream.h"

namespace rankwise {

// Data went to the device on `stream`.
void NoteFakeCopy(const c10::Stream& stream);
// A tensor was recorded on `stream`.
void NoteFakeRecord(const c10::Stream& stream);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_FAKE_DEVICE_STATE_FOR_TEST_H_
