// What the layers of this room exchange, started and finished apart, so that
// ranks compute in between. Not for other rooms.
#ifndef RANKWISE_PARALLEL_TENSOR_EXCHANGE_H_
#define RANKWISE_PARALLEL_TENSOR_EXCHANGE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/tensor/regions.h"
#include "torch/csrc/autograd/custom_function.h"
#include "torch/csrc/distributed/c10d/Types.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"
#include "torch/types.h"

namespace rankwise::tensor {

// A collective in flight. One that is not finished, because of an exception, is
// waited for by the destructor: its tensors are not freed under it.
class Exchange {
 public:
  Exchange(c10::intrusive_ptr<c10d::Work> work, torch::Tensor input,
           torch::Tensor output, const TensorParallel& tp)
      : work_(std::move(work)),
        input_(std::move(input)),
        output_(std::move(output)),
        exposed_(tp.exposed) {}
  ~Exchange();
  Exchange(Exchange&&) = default;
  Exchange& operator=(Exchange&&) = delete;

  // Waits for the result, and hands it over. Once.
  torch::Tensor Finish();

 private:
  c10::intrusive_ptr<c10d::Work> work_;  // null: finished, or moved from
  torch::Tensor input_;
  torch::Tensor output_;
  ExposedComm* exposed_;
};

// All of these need a group of more than one rank.

// Reduces contiguous `x` in place.
Exchange StartAllReduce(const torch::Tensor& x, const TensorParallel& tp,
                        const c10d::ReduceOp& op = c10d::ReduceOp::SUM);
// x [...] of all ranks: [ranks, ...].
Exchange StartAllGather(const torch::Tensor& x, const TensorParallel& tp);
// Contiguous x [ranks, ...]: the sum of the ranks' x[place], [...].
Exchange StartReduceScatter(const torch::Tensor& x, const TensorParallel& tp);

// The parts of x along `dim`, the last ones padded with zeros, one after the
// other: [ranks, ..., part, ...], contiguous. Copies where it must.
torch::Tensor Stack(const torch::Tensor& x, int64_t dim,
                    const TensorParallel& tp);
// The reverse, without the padding: `size` along `dim`, contiguous. The parts
// are cut into `pieces` along `dim`, each [ranks, ..., piece, ...].
torch::Tensor Unstack(std::vector<torch::Tensor> pieces, int64_t dim,
                      int64_t size);
// `pieces` along `dim` as one.
torch::Tensor Join(std::vector<torch::Tensor> pieces, int64_t dim);

// What forward leaves for backward.
void Keep(torch::autograd::AutogradContext& ctx, const TensorParallel& tp);
TensorParallel Kept(const torch::autograd::AutogradContext& ctx);

}  // namespace rankwise::tensor

#endif  // RANKWISE_PARALLEL_TENSOR_EXCHANGE_H_
