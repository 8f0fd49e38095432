#include "parallel/context/context_parallel.h"

#include <string>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "parallel/autograd/autocast.h"
#include "parallel/comm/exchange.h"
#include "parallel/context/block_attention.h"
#include "parallel/context/ring.h"
#include "parallel/context/slices.h"
#include "parallel/context/ulysses.h"
#include "records/text.h"

namespace rankwise {
namespace {

void CheckSizes(const torch::Tensor& q, const torch::Tensor& k,
                const torch::Tensor& v) {
  TORCH_CHECK(
      q.dim() == 4 && k.sizes() == v.sizes() &&
          q.sizes().slice(0, 1) == k.sizes().slice(0, 1) &&
          q.sizes().slice(2) == k.sizes().slice(2) &&
          q.size(1) % k.size(1) == 0,
      "q ", q.sizes(), ", k ", k.sizes(), " and v ", v.sizes(),
      " must be [B, heads, tokens here, features] with the same sizes, except "
      "that k and v may have a divisor of q's heads");
}

}  // namespace

absl::Status CheckContextParallel(const SequenceShape& shape, int64_t heads,
                                  int64_t kv_heads, ContextMethod method,
                                  int ranks) {
  const bool is_ring = method == ContextMethod::kRing;
  const auto refusal = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--cp=", ranks, " --context=", is_ring ? "ring" : "ulysses", ": ",
        why...));
  };
  if (ranks < 1) return refusal("there must be at least 1 rank");
  if (ranks == 1) return absl::OkStatus();
  if (shape.causal && shape.tokens % (2 * ranks) != 0) {
    return refusal(shape.tokens, " tokens do not divide into ", 2 * ranks,
                   " equal pieces, two for each rank; --cp=",
                   DivisorsOf(shape.tokens % 2 == 0 ? shape.tokens / 2 : 1),
                   " fits");
  }
  if (shape.tokens < ranks) {
    return refusal(shape.tokens,
                   " tokens leave some ranks without any; --cp=", shape.tokens,
                   " is the most that fits");
  }
  if (!is_ring && kv_heads % ranks != 0) {
    return refusal(kv_heads, kv_heads < heads ? " key and value" : " attention",
                   kv_heads == 1 ? " head does" : " heads do",
                   " not divide among ", ranks, " ranks; ",
                   DivisorsOf(kv_heads), kv_heads == 1 ? " does" : " do");
  }
  return absl::OkStatus();
}

torch::Tensor ContextGather(const torch::Tensor& x, int64_t dim,
                            const SequenceShape& shape,
                            const ContextParallel& cp) {
  if (cp.size() == 1) return x;
  TORCH_CHECK(shape.tokens % cp.size() == 0,
              "ranks with different numbers of tokens cannot be gathered");
  const at::NoGradGuard no_grad;
  const torch::Tensor all =
      StartAllGather(x, cp.group, /*exposed=*/nullptr).Finish();
  return JoinRuns(all.unbind(0), dim, shape);
}

torch::Tensor ContextAttention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v,
                               const SequenceShape& shape, double dropout,
                               const ContextParallel& cp) {
  CheckSizes(q, k, v);
  if (cp.size() == 1) return AttendToAll(q, k, v, dropout, shape.causal);
  const int64_t tokens = TokensAt(shape, cp.size(), cp.place());
  TORCH_CHECK(q.size(2) == tokens, "place ", cp.place(), " of ", cp.size(),
              " has ", tokens, " of ", shape.tokens, " tokens, not ",
              q.size(2));
  const torch::Tensor cast_q = CastByAutocast(q), cast_k = CastByAutocast(k),
                      cast_v = CastByAutocast(v);
  if (cp.method == ContextMethod::kUlysses)
    return UlyssesAttention(cast_q, cast_k, cast_v, shape, dropout, cp);
  TORCH_CHECK(dropout == 0,
              "ring attention has no dropout of the attention weights; "
              "--context=ulysses has");
  return RingAttention(cast_q, cast_k, cast_v, shape, cp);
}

}  // namespace rankwise
