// The backward pass in two halves: first the gradient of the input, for which
// the stage before waits, and later those of the parameters, for which nobody
// does. Zero-bubble schedules fill idle time with the second half (Qi et al.
// 2023, "Zero Bubble Pipeline Parallelism").
#ifndef RANKWISE_PARALLEL_PIPELINE_SPLIT_BACKWARD_H_
#define RANKWISE_PARALLEL_PIPELINE_SPLIT_BACKWARD_H_

#include <memory>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/csrc/autograd/edge.h"

namespace rankwise {

// Works on the graph that autograd recorded, for any model. On the way from the
// output to the input lie nodes with a branch that leads to parameters only.
// InputGrad executes the way and none of the branches, and keeps the gradient
// that arrives at each such node; WeightGrad executes these nodes' branches
// from there, and nothing of the way between them. Both halves together give
// the gradients of a fused backward, bit for bit.
//
//   SplitBackward backward(output, input);
//   Send(backward.InputGrad(grad_output));
//   ...
//   backward.WeightGrad();
class SplitBackward {
 public:
  // `output` requires a gradient and has its graph; no other backward may go
  // through that graph. `input` is a leaf that requires a gradient, or
  // undefined: then InputGrad computes nothing and WeightGrad the whole
  // backward.
  SplitBackward(const at::Tensor& output, const at::Tensor& input);

  // d loss / d input, shaped as the input: zeros if the output does not depend
  // on it; undefined if there is no input. `grad_output` is shaped as the
  // output. Called once. Frees what only the input's gradient needed.
  at::Tensor InputGrad(const at::Tensor& grad_output);

  // Adds the gradients of all other leaves to their .grad(), and frees the
  // rest of the graph. Called once, after InputGrad.
  void WeightGrad();

 private:
  // A node on the way to the input, with what arrived at it.
  struct Fork {
    std::shared_ptr<torch::autograd::Node> node;
    std::shared_ptr<std::vector<at::Tensor>> gradients;  // one per input
  };

  // Finds the forks and has them keep what arrives.
  void WatchForks(
      const std::unordered_map<torch::autograd::Node*, bool>& reaches_input);

  torch::autograd::Edge root_;
  at::Tensor input_;
  std::vector<Fork> forks_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SPLIT_BACKWARD_H_
