// What one pipeline stage computes. Implemented by whoever owns the model.
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"

namespace rankwise {

// Not thread-safe. Called by the executor's thread only.
class Stage {
 public:
  virtual ~Stage() = default;

  // Forward of one micro-batch of b examples. `input` is the output of the
  // stage before, [b, ...]; undefined for the first stage, which finds its
  // input itself. Must not change `input` in place. Returns [b, ...], or, from
  // the last stage, a scalar: this micro-batch's share of the step's mean loss,
  // so that shares add up to it. Called a second time with the same arguments
  // where activations are recomputed, and must then compute the same.
  virtual at::Tensor Forward(int micro_batch, const at::Tensor& input) = 0;

  // Shape of `input` above. Not called for the first stage.
  virtual std::vector<int64_t> InputShape(int micro_batch) const = 0;
  // Shape of what Forward returns, which the next stage calls its InputShape.
  // Not called for the last stage.
  virtual std::vector<int64_t> OutputShape(int micro_batch) const = 0;
  // Their types, likewise; the gradients that come back have the same.
  virtual at::ScalarType InputType() const { return at::kFloat; }
  virtual at::ScalarType OutputType() const { return at::kFloat; }

  // The parameters that W computes gradients for.
  virtual std::vector<at::Tensor> Parameters() const = 0;

  // What else Forward changes, such as batch norm's running statistics. A
  // Forward that is called to recompute leaves no trace in them.
  virtual std::vector<at::Tensor> Buffers() const { return {}; }
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_H_
