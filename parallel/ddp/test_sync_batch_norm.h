// For tests: the same batch normalised whole and distributed over ranks.
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
  double mean = 0;  // of the input, whose standard deviation is about 2
};

// Returns cases for `world_size` ranks: 2-D to 5-D, channels-last, unequal and
// empty batches, 16-bit floats, a mean far from 0.
std::vector<NormCase> NormCases(int world_size);

// Results and gradients of sum(y * g) for a fixed g, in fp32.
struct NormResult {
  torch::Tensor y, dx;           // of the given rank's rows
  torch::Tensor dweight, dbias;  // of the whole batch; 0 without affine
  torch::Tensor mean, variance;  // of the whole batch; unbiased
};

// Normalises the whole batch by torch::nn::BatchNorm, always in fp32; y and dx
// are the rows of `rank`.
NormResult NormalizeWhole(const NormCase& c, int rank, torch::Device device);

// Normalises this rank's rows by SyncBatchNormForward.
NormResult NormalizeShare(const NormCase& c, Communicator& comm);

// Fails the test if they differ by more than 1e-5 relative; 16-bit y and dx may
// differ by their rounding.
void ExpectSame(const NormCase& c, const NormResult& got,
                const NormResult& want);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_TEST_SYNC_BATCH_NORM_H_
