#include "trainers/models/division.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <mutex>

#include "parallel/context/slices.h"
#include "samplers/datasets/split_mix.h"

namespace rankwise {
namespace {

// Returns `tensor` with dimension dim split in two: the blocks, followed by the
// dimension that is divided.
torch::Tensor WithBlocks(const torch::Tensor& tensor,
                         const Division& division) {
  return tensor.unflatten(division.dim, {division.blocks, -1});
}

}  // namespace

int64_t TokensHere(const SequenceShape& shape, const ModelSplit& split) {
  return TokensAt(shape, split.context, split.context_place);
}

int64_t TokensBetweenLayers(const SequenceShape& shape,
                            const ModelSplit& split) {
  const int64_t tokens = TokensHere(shape, split);
  return split.sequence ? PartSize(tokens, split.tensor) : tokens;
}

std::vector<DivisionPiece> PiecesOf(const Division& division,
                                    const TensorParallel& tp) {
  const int64_t block = division.size / division.blocks;
  const int64_t part = PartSize(block, tp);
  const int64_t begin = std::min(tp.place() * part, block);
  const int64_t size = std::min(part, block - begin);
  std::vector<DivisionPiece> pieces;
  for (int64_t i = 0; i < division.blocks; ++i)
    pieces.push_back(
        {.here = i * part, .begin = i * block + begin, .size = size});
  return pieces;
}

torch::Tensor PartOf(const torch::Tensor& whole, const Division& division,
                     const TensorParallel& tp) {
  return PartOf(WithBlocks(whole, division), division.dim + 1, tp)
      .flatten(division.dim, division.dim + 1);
}

torch::Tensor WholeOf(const torch::Tensor& part, const Division& division,
                      const TensorParallel& tp) {
  const at::NoGradGuard no_grad;
  return GatherFromRanks(WithBlocks(part, division), division.dim + 1,
                         division.size / division.blocks, tp)
      .flatten(division.dim, division.dim + 1);
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
