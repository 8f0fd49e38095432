// Memory that a communication library has registered.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_REGISTERED_MEMORY_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_REGISTERED_MEMORY_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"

namespace rankwise::comm_bench {

// So that the library can send from it and receive into it without copies of
// its own. Outlives its tensors.
class RegisteredMemory {
 public:
  virtual ~RegisteredMemory() = default;
  // `count` elements, not set. Throws c10::Error where memory is short or the
  // library refuses it.
  virtual at::Tensor New(int64_t count, c10::ScalarType dtype) = 0;
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_REGISTERED_MEMORY_H_
