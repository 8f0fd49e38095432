// Division of a model among ranks: its weights along tp, its sequences along
// cp, and under sequence parallelism the tokens between its layers along tp.
#ifndef RANKWISE_TRAINERS_MODELS_DIVISION_H_
#define RANKWISE_TRAINERS_MODELS_DIVISION_H_

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "parallel/context/context_parallel.h"
#include "parallel/tensor/regions.h"

namespace rankwise {

// Part of ModelConfig; by default nothing is divided.
struct ModelSplit {
  int tensor = 1;         // --tp
  bool sequence = false;  // --sequence_parallel
  int context = 1;        // --cp
  int context_place = 0;  // this rank's coordinate along cp
  ContextMethod method = ContextMethod::kRing;  // --context
  int overlap_pieces = 1;                       // --tp_overlap
};

// The same division with this rank's groups.
struct ModelParallel {
  TensorParallel tensor;
  ContextParallel context;
};

// Return the tokens of a sequence on this rank, and its tokens between layers.
int64_t TokensHere(const SequenceShape& shape, const ModelSplit& split);
int64_t TokensBetweenLayers(const SequenceShape& shape,
                            const ModelSplit& split);

// Division of a weight along tp: dimension `dim` of the whole weight consists
// of consecutive blocks, whose sizes are `blocks`, each of which is divided.
// Three blocks: the rows of queries, keys and values.
struct Division {
  int64_t size() const;  // of the dimension, in the whole weight

  int64_t dim = 0;
  std::vector<int64_t> blocks = {};
};

// A piece of the divided dimension: [here, here + size) of the part is [begin,
// begin + size) of the whole.
struct DivisionPiece {
  int64_t here = 0, begin = 0, size = 0;
};

// Returns the pieces of this rank's part, one per block, without the padding of
// a dimension that does not divide evenly.
std::vector<DivisionPiece> PiecesOf(const Division& division,
                                    const TensorParallel& tp);

// Returns this rank's part of `whole`, without a gradient.
torch::Tensor PartOf(const torch::Tensor& whole, const Division& division,
                     const TensorParallel& tp);

// Returns the whole tensor from every rank's `part`, without a gradient.
// Collective along tp.
torch::Tensor WholeOf(const torch::Tensor& part, const Division& division,
                      const TensorParallel& tp);

// While it exists, the device's default generator produces a sequence
// determined by its seed and `stream`; afterwards it continues as before. So
// draws that ranks share do not depend on each rank's own draws.
class ForkedGenerator {
 public:
  ForkedGenerator(c10::Device device, uint64_t stream);
  ~ForkedGenerator();
  ForkedGenerator(const ForkedGenerator&) = delete;
  ForkedGenerator& operator=(const ForkedGenerator&) = delete;

 private:
  at::Generator generator_;
  torch::Tensor state_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_DIVISION_H_
