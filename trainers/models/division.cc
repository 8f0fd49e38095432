#include "trainers/models/division.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <vector>

#include "parallel/context/slices.h"
#include "samplers/datasets/split_mix.h"

namespace rankwise {
int64_t TokensHere(const SequenceShape& shape, const ModelSplit& split) {
  return TokensAt(shape, split.context, split.context_place);
}

int64_t TokensBetweenLayers(const SequenceShape& shape,
                            const ModelSplit& split) {
  const int64_t tokens = TokensHere(shape, split);
  return split.sequence ? PartSize(tokens, split.tensor) : tokens;
}

int64_t Division::size() const {
  return std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
}

std::vector<DivisionPiece> PiecesOf(const Division& division,
                                    const TensorParallel& tp) {
  std::vector<DivisionPiece> pieces;
  int64_t here = 0, block_begin = 0;
  for (int64_t block : division.blocks) {
    const int64_t part = PartSize(block, tp);
    const int64_t begin = std::min(tp.place() * part, block);
    pieces.push_back({.here = here,
                      .begin = block_begin + begin,
                      .size = std::min(part, block - begin)});
    here += part;
    block_begin += block;
  }
  return pieces;
}

torch::Tensor PartOf(const torch::Tensor& whole, const Division& division,
                     const TensorParallel& tp) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& block :
       whole.detach().split_with_sizes(division.blocks, division.dim)) {
    parts.push_back(PartOf(block, division.dim, tp));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, division.dim);
}

torch::Tensor WholeOf(const torch::Tensor& part, const Division& division,
                      const TensorParallel& tp) {
  const at::NoGradGuard no_grad;
  const int64_t dim = division.dim, size = part.size(dim);
  const torch::Tensor by_rank = GatherFromRanks(part, dim, size * tp.size(), tp)
                                    .unflatten(dim, {tp.size(), size});
  std::vector<torch::Tensor> blocks;
  int64_t here = 0;
  for (int64_t block : division.blocks) {
    const int64_t block_part = PartSize(block, tp);
    blocks.push_back(by_rank.narrow(dim + 1, here, block_part)
                         .flatten(dim, dim + 1)
                         .narrow(dim, 0, block));
    here += block_part;
  }
  return at::cat(blocks, dim);
}

ForkedGenerator::ForkedGenerator(c10::Device device, uint64_t stream)
    : generator_(at::globalContext().defaultGenerator(device)) {
  const std::lock_guard<std::mutex> lock(generator_.mutex());
  state_ = generator_.get_state();
  const uint64_t seed = MixIn(generator_.current_seed(), stream);
  generator_.set_current_seed(seed);
}

ForkedGenerator::~ForkedGenerator() {
  const std::lock_guard<std::mutex> lock(generator_.mutex());
  generator_.set_state(state_);
}

}  // namespace rankwise
