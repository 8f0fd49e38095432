// How a model is divided among ranks: its weights along tp, its sequences along
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

// Of ModelConfig: by default nothing is divided.
struct ModelSplit {
  int tensor = 1;         // --tp
  bool sequence = false;  // --sequence_parallel
  int context = 1;        // --cp
  int context_place = 0;  // this rank's coordinate along cp
  ContextMethod method = ContextMethod::kRing;  // --context
  int overlap_pieces = 1;                       // --tp_overlap
};

// The same with this rank's groups.
struct ModelParallel {
  TensorParallel tensor;
  ContextParallel context;
};

// The tokens of a sequence on this rank, and those of them that it has between
// layers.
int64_t TokensHere(const SequenceShape& shape, const ModelSplit& split);
int64_t TokensBetweenLayers(const SequenceShape& shape,
                            const ModelSplit& split);

// How a weight is divided along tp: dimension `dim`, of `size` in the whole
// weight, is `blocks` equal blocks one after another, each of which is divided.
// 3 blocks: the rows of queries, keys and values.
struct Division {
  int64_t dim = 0, size = 0, blocks = 1;
};

// What a part has of the divided dimension: its [here, here + size) are the
// whole's [begin, begin + size).
struct DivisionPiece {
  int64_t here = 0, begin = 0, size = 0;
};

// Of this rank's part, one for each block: without the padding of a dimension
// that does not divide evenly.
std::vector<DivisionPiece> PiecesOf(const Division& division,
                                    const TensorParallel& tp);

// This rank's part of `whole`, without a gradient.
torch::Tensor PartOf(const torch::Tensor& whole, const Division& division,
                     const TensorParallel& tp);

// The whole of which every rank has its `part`, without a gradient. Collective
// along tp.
torch::Tensor WholeOf(const torch::Tensor& part, const Division& division,
                      const TensorParallel& tp);

// Until it is destroyed the device's default generator gives what follows from
// its seed and `stream`; then it goes on as if nothing had been drawn. So what
// ranks draw alike does not depend on what each draws for its part.
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
