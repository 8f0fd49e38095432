// For tests: the same batch normalised whole and spread over ranks.
#ifndef RANKWISE_PARALLEL_DDP_TEST_SYNC_BATCH_NORM_H_
#define RANKWISE_PARALLEL_DDP_TEST_SYNC_BATCH_NORM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "torch/types.h"

namespace rankwise {

struct NormCase {
  std::string name;
  std::vector<int64_t> rows;     // by rank
  std::vector<int64_t> example;  // {C, ...}
  bool channels_last = false;
  torch::ScalarType type = torch::kFloat;
  bool affine = true;
  double mean = 0;  // of the input, whose deviation is about 2
};

// 2-D to 5-D, channels-last, unequal and empty batches, 16-bit floats, a mean
// far from 0. `world_size` ranks.
std::vector<NormCase> NormCases(int world_size);

// Of sum(y * g) for a fixed g. fp32 throughout.
struct NormResult {
  torch::Tensor y, dx;           // of the rows asked for
  torch::Tensor dweight, dbias;  // of the whole batch; 0 without affine
  torch::Tensor mean, variance;  // of the whole batch; unbiased
};

// By torch::nn::BatchNorm, on the whole batch in fp32 whatever the case's type;
// rows of `rank`.
NormResult NormalizeWhole(const NormCase& c, int rank, torch::Device device);

// By SyncBatchNormForward, on this rank's rows.
NormResult NormalizeShare(const NormCase& c, Communicator& comm);

// Fails the test where they differ by more than 1e-5 of a value's size; 16-bit
// y and dx by more than their own rounding.
void ExpectSame(const NormCase& c, const NormResult& got,
                const NormResult& want);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_TEST_SYNC_BATCH_NORM_H_
