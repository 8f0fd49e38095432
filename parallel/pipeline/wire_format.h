// How activations and their gradients travel, and the buffers they arrive in.
#ifndef RANKWISE_PARALLEL_PIPELINE_WIRE_FORMAT_H_
#define RANKWISE_PARALLEL_PIPELINE_WIRE_FORMAT_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"

namespace rankwise {

// The bytes of `tensor` as a contiguous tensor of its type without a graph; a
// copy only where they are not so already. Four-dimensional tensors
// [n, c, h, w] travel as [n, h, w, c]: convolutions compute in channels_last,
// and whoever receives that computes to the last bit what one process would.
at::Tensor ToWire(const at::Tensor& tensor);

// The tensor of that shape whose bytes `wire` holds. Shares them.
at::Tensor FromWire(const at::Tensor& wire);

std::vector<int64_t> WireShape(std::vector<int64_t> shape);

// Buffers to receive into, used again once nothing else refers to them. The
// graph of a stage holds on to its input until the backward is done, so that
// as many exist as micro-batches were in flight at once. On an accelerator,
// where the host does not see when a buffer has been read, its allocator sees
// to that, and to using memory again. Not thread-safe.
class WireBuffers {
 public:
  // `filled`: with small finite numbers, for a computation that goes on without
  // what should have arrived; else the content is any.
  explicit WireBuffers(c10::Device device, bool filled = false)
      : device_(device), filled_(filled) {}

  // Free again when all tensors that share it are gone.
  at::Tensor Take(const std::vector<int64_t>& wire_shape,
                  at::ScalarType type = at::kFloat);

  size_t count() const { return buffers_.size(); }

 private:
  c10::Device device_;
  bool filled_;
  std::vector<at::Tensor> buffers_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_WIRE_FORMAT_H_
