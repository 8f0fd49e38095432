// For tests: a small model to train on ranks that are threads.
#ifndef RANKWISE_PARALLEL_DDP_TEST_RANKS_H_
#define RANKWISE_PARALLEL_DDP_TEST_RANKS_H_

#include <vector>

#include "parallel/comm/test_ranks.h"  // IWYU pragma: export
#include "parallel/ddp/gradient_sync.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/linear.h"
#include "torch/types.h"

namespace rankwise {

// Three layers, another that a step may omit, and two buffers.
struct TestNet : torch::nn::Module {
  TestNet();
  torch::Tensor forward(const torch::Tensor& x, bool use_extra = true);

  torch::nn::Linear first, second, extra, last;
  torch::Tensor scale;  // buffer: the output is multiplied by it
  torch::Tensor steps;  // buffer, int64
};

// Sets the parameters as a function of the seed only. Does not touch the global
// generator, which threads share.
void Fill(torch::nn::Module& module, uint64_t seed);

struct TestBatch {
  torch::Tensor x, y;
};
// Returns the rows of `rank` in the global batch of a step.
TestBatch BatchOf(int step, int rank, int rows = 4);
// Returns the rows of all ranks.
TestBatch GlobalBatch(int step, int world_size, int rows = 4);

torch::Tensor LossOf(TestNet& net, const TestBatch& batch,
                     bool use_extra = true);

// Runs BeforeForward to AfterBackward, with the loss multiplied by `weight`.
void Backward(TestNet& net, DataParallelEngine& engine, const TestBatch& batch,
              bool use_extra = true, double weight = 1);

void ZeroGradients(torch::nn::Module& module);  // in place
void Descend(torch::nn::Module& module, double rate = 0.1);
std::vector<torch::Tensor> Gradients(const torch::nn::Module& module);
std::vector<torch::Tensor> Values(const torch::nn::Module& module);

// Returns the largest absolute difference between two lists of tensors.
double Distance(const std::vector<torch::Tensor>& a,
                const std::vector<torch::Tensor>& b);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_TEST_RANKS_H_
