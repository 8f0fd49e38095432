#include "parallel/context/ulysses.h"

#include <cstdint>
#include <vector>

#include "ATen/ops/cat.h"
#include "parallel/context/block_attention.h"
#include "parallel/context/exchange.h"
#include "parallel/context/slices.h"

namespace rankwise {
namespace {

// Converts q, k and v [B, heads of each, tokens here, features] to [B, heads of
// each / ranks, all tokens, features].
std::vector<torch::Tensor> GatherTokens(const std::vector<torch::Tensor>& qkv,
                                        const SequenceShape& shape,
                                        const ContextParallel& cp) {
  const int64_t ranks = cp.size();
  std::vector<torch::Tensor> by_rank;  // [ranks, B, heads / ranks, ...]
  std::vector<int64_t> heads;
  for (const torch::Tensor& x : qkv) {
    by_rank.push_back(x.unflatten(1, {ranks, -1}).movedim(1, 0));
    heads.push_back(by_rank.back().size(2));
  }
  const torch::Tensor sent = at::cat(by_rank, /*dim=*/2);
  std::vector<int64_t> sizes = sent.sizes().slice(1).vec();
  const int64_t per_token = sent.numel() / ranks / sizes[2];
  std::vector<int64_t> receives;
  for (int place = 0; place < ranks; ++place)
    receives.push_back(per_token * TokensAt(shape, cp.size(), place));
  const std::vector<int64_t> sends(ranks, per_token * sizes[2]);
  std::vector<torch::Tensor> parts =
      AllToAll(sent.flatten(), sends, receives, cp).split_with_sizes(receives);
  for (int place = 0; place < ranks; ++place) {
    sizes[2] = TokensAt(shape, cp.size(), place);
    parts[place] = parts[place].view(sizes);
  }
  return JoinRuns(parts, /*dim=*/2, shape).split_with_sizes(heads, /*dim=*/1);
}

// Converts x [B, heads / ranks, all tokens, features] to [B, heads, tokens
// here, features].
torch::Tensor GatherHeads(const torch::Tensor& x, const SequenceShape& shape,
                          const ContextParallel& cp) {
  const int64_t ranks = cp.size();
  std::vector<torch::Tensor> parts;
  std::vector<int64_t> sends;
  for (int place = 0; place < ranks; ++place) {
    const auto runs = TokenRuns(shape, cp.size(), place);
    parts.push_back(TakeRuns(x, /*dim=*/2, runs).flatten());
    sends.push_back(parts.back().numel());
  }
  const std::vector<int64_t> receives(ranks, sends[cp.place()]);
  return AllToAll(at::cat(parts), sends, receives, cp)
      .view({ranks, x.size(0), x.size(1), -1, x.size(3)})
      .movedim(0, 1)
      .flatten(1, 2);
}

}  // namespace

torch::Tensor UlyssesAttention(const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v,
                               const SequenceShape& shape, double dropout,
                               const ContextParallel& cp) {
  const std::vector<torch::Tensor> all = GatherTokens({q, k, v}, shape, cp);
  return GatherHeads(AttendToAll(all[0], all[1], all[2], dropout, shape.causal),
                     shape, cp);
}

}  // namespace rankwise
