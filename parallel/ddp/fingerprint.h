// 64-bit fingerprints, equal for equal bytes on every machine of one byte
// order. For finding accidents, not attacks.
#ifndef RANKWISE_PARALLEL_DDP_FINGERPRINT_H_
#define RANKWISE_PARALLEL_DDP_FINGERPRINT_H_

#include <cstddef>
#include <cstdint>

#include "torch/types.h"

namespace rankwise {

uint64_t FingerprintBytes(const void* data, size_t size);

// Of the elements' bits in row-major order, whatever the memory layout: tells
// 0.0 from -0.0 and one NaN from another. Copies to the host if need be.
uint64_t FingerprintTensor(const torch::Tensor& tensor);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_FINGERPRINT_H_
