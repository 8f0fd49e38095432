// Context parallelism: a group of ranks divides each sequence; only attention
// exchanges tokens between ranks.
#ifndef RANKWISE_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_
#define RANKWISE_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "parallel/comm/exposed_comm.h"
#include "parallel/comm/group.h"
#include "torch/types.h"

namespace rankwise {

enum class ContextMethod {
  // Keys and values circulate among the ranks; each rank attends to the ones it
  // currently holds (Liu et al. 2023, "Ring Attention").
  kRing,
  // An all-to-all gives every rank all tokens of some heads; another one
  // reverses it (Jacobs et al. 2023, "DeepSpeed Ulysses").
  kUlysses,
};

struct ContextParallel {
  Group group = {};
  ContextMethod method = ContextMethod::kRing;
  // Sums exposed communication; must outlive all uses; may be nullptr.
  ExposedComm* exposed = nullptr;

  int size() const { return group.size(); }
  int place() const { return group.place(); }
};

// Shape of the sequences that attention processes.
struct SequenceShape {
  int64_t tokens = 0;   // in the whole sequence
  bool causal = false;  // a token attends to itself and earlier tokens only
};

// Returns InvalidArgument if `ranks` cannot divide sequences of `shape`, or,
// with Ulysses, the `kv_heads` key and value heads, which divide `heads`; the
// message names --cp, --context and values that fit.
// Causal sequences are divided into 2 * ranks equal pieces, others into parts
// that may differ by one token.
absl::Status CheckContextParallel(const SequenceShape& shape, int64_t heads,
                                  int64_t kv_heads, ContextMethod method,
                                  int ranks);

// Returns the ascending positions of the tokens on the rank with index `place`
// of `ranks`, int64 [tokens here]. For causal sequences these are pieces
// `place` and 2 * ranks - 1 - place, which gives every rank the same number of
// query-key pairs (zig-zag; Dubey et al. 2024, "The Llama 3 Herd of Models",
// section 3.3.2). Otherwise they are one run; earlier ranks have any extra
// token.
torch::Tensor ContextPositions(const SequenceShape& shape, int ranks,
                               int place);

// Returns this rank's tokens of x, which has all tokens along `dim`; a view if
// they are one run. Differentiable.
torch::Tensor ContextSlice(const torch::Tensor& x, int64_t dim,
                           const SequenceShape& shape,
                           const ContextParallel& cp);

// Gathers all tokens along `dim`; every rank must hold equally many in x. Not
// differentiable.
torch::Tensor ContextGather(const torch::Tensor& x, int64_t dim,
                            const SequenceShape& shape,
                            const ContextParallel& cp);

// Returns this rank's rows of scaled dot-product attention over all tokens: q
// and the result are [B, heads, tokens here, features], k and v [B, kv_heads,
// tokens here, features], of fp32, bf16, fp16 or fp64 on one device. Query head
// h uses key and value head h / (heads / kv_heads); only the kv_heads travel
// (Ainslie et al. 2023, "GQA"). Differentiable. Collective along the group; in
// a group of one it is at::scaled_dot_product_attention. `dropout` applies to
// the attention weights, from the default generator, and requires Ulysses.
// Rethrows the error of a failed exchange, and leaves none in flight.
torch::Tensor ContextAttention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v,
                               const SequenceShape& shape, double dropout,
                               const ContextParallel& cp);

// Sums x over the ranks; backward sums the ranks' gradients.
torch::Tensor SumOverContext(const torch::Tensor& x, const ContextParallel& cp);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CONTEXT_CONTEXT_PARALLEL_H_
