// Context parallelism: a line of ranks divides each sequence, and only
// attention needs the other ranks' tokens.
#ifndef RANKWISE_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_
#define RANKWISE_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "parallel/comm/exposed_comm.h"
#include "parallel/comm/group.h"
#include "torch/types.h"

namespace rankwise {

enum class ContextMethod {
  // Keys and values go round the ranks while each attends to what it has (Liu
  // et al. 2023, "Ring Attention").
  kRing,
  // An all-to-all gives every rank all tokens of some heads, and back (Jacobs
  // et al. 2023, "DeepSpeed Ulysses").
  kUlysses,
};

struct ContextParallel {
  Group group = {};
  ContextMethod method = ContextMethod::kRing;
  // Where waiting is added up, which outlives all use; null: it is not counted.
  ExposedComm* exposed = nullptr;

  int size() const { return group.size(); }
  int place() const { return group.place(); }
};

// Of the sequences that attention sees.
struct SequenceShape {
  int64_t tokens = 0;   // of the whole sequence
  bool causal = false;  // a token attends to itself and those before it
};

// InvalidArgument that names --cp and --context and what fits, where `ranks`
// cannot divide sequences of `shape`, or Ulysses the `heads`. Causal sequences
// are divided into 2 * ranks equal pieces; others into parts that may differ by
// one token.
absl::Status CheckContextParallel(const SequenceShape& shape, int64_t heads,
                                  ContextMethod method, int ranks);

// Which tokens of a sequence are on the rank in `place` of `ranks`, in order,
// int64 [tokens here]. Of a causal sequence pieces `place` and 2 * ranks - 1 -
// place, so that every rank has the same number of pairs to attend to (zig-zag;
// Dubey et al. 2024, "The Llama 3 Herd of Models", section 3.3.2); else
// `place`'s run of tokens, where earlier ranks have the one token more.
torch::Tensor ContextPositions(const SequenceShape& shape, int ranks,
                               int place);

// This rank's tokens of x, which has all of them along `dim`; a view where they
// are one run. Differentiable.
torch::Tensor ContextSlice(const torch::Tensor& x, int64_t dim,
                           const SequenceShape& shape,
                           const ContextParallel& cp);

// All tokens along `dim`, of which every rank has as many in x; without a
// gradient.
torch::Tensor ContextGather(const torch::Tensor& x, int64_t dim,
                            const SequenceShape& shape,
                            const ContextParallel& cp);

// This rank's rows of scaled dot-product attention over all tokens: q, k, v and
// the result [B, heads, tokens here, features], of fp32, bf16, fp16 or fp64 on
// one device, differentiable. Collective along the group; in a group of one it
// is at::scaled_dot_product_attention. `dropout`, of the attention weights,
// from the default generator: Ulysses only. Throws what a failed exchange
// throws, and leaves none in flight.
torch::Tensor ContextAttention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v,
                               const SequenceShape& shape, double dropout,
                               const ContextParallel& cp);

// The sum over the ranks, forward and, of the ranks' gradients, backward.
torch::Tensor SumOverContext(const torch::Tensor& x, const ContextParallel& cp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_
