#include "parallel/context/slices.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"

namespace rankwise {

std::vector<TokenRun> TokenRuns(const SequenceShape& shape, int ranks,
                                int place) {
  if (shape.causal && ranks > 1) {
    const int64_t piece = shape.tokens / (2 * ranks);
    return {{place * piece, piece}, {(2 * ranks - 1 - place) * piece, piece}};
  }
  const int64_t fewest = shape.tokens / ranks, longer = shape.tokens % ranks;
  return {{place * fewest + std::min<int64_t>(place, longer),
           fewest + (place < longer ? 1 : 0)}};
}

int64_t TokensAt(const SequenceShape& shape, int ranks, int place) {
  const std::vector<TokenRun> runs = TokenRuns(shape, ranks, place);
  return std::accumulate(
      runs.begin(), runs.end(), int64_t{0},
      [](int64_t sum, const TokenRun& run) { return sum + run.tokens; });
}

torch::Tensor TakeRuns(const torch::Tensor& x, int64_t dim,
                       const std::vector<TokenRun>& runs) {
  std::vector<torch::Tensor> pieces;
  for (const TokenRun& run : runs)
    pieces.push_back(x.narrow(dim, run.start, run.tokens));
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces, dim);
}

torch::Tensor JoinRuns(const std::vector<torch::Tensor>& by_place, int64_t dim,
                       const SequenceShape& shape) {
  const int ranks = static_cast<int>(by_place.size());
  std::map<int64_t, torch::Tensor> by_start;
  for (int place = 0; place < ranks; ++place) {
    int64_t taken = 0;
    for (const TokenRun& run : TokenRuns(shape, ranks, place)) {
      by_start[run.start] = by_place[place].narrow(dim, taken, run.tokens);
      taken += run.tokens;
    }
  }
  std::vector<torch::Tensor> pieces;
  for (const auto& [start, piece] : by_start) pieces.push_back(piece);
  return at::cat(pieces, dim);
}

torch::Tensor ContextPositions(const SequenceShape& shape, int ranks,
                               int place) {
  return TakeRuns(at::arange(shape.tokens, at::kLong), /*dim=*/0,
                  TokenRuns(shape, ranks, place));
}

torch::Tensor ContextSlice(const torch::Tensor& x, int64_t dim,
                           const SequenceShape& shape,
                           const ContextParallel& cp) {
  return TakeRuns(x, dim, TokenRuns(shape, cp.size(), cp.place()));
}

}  // namespace rankwise
