// What F, B, I and W do to one stage, and what is kept between them.
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_RUNNER_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_RUNNER_H_

#include <memory>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "torch/csrc/autograd/edge.h"

namespace rankwise {

// The backward pass in two halves: first the gradient of the input, for which
// the stage before waits, and later those of the parameters, for which nobody
// does. Zero-bubble schedules fill idle time with the second half (Qi et al.
// 2023, "Zero Bubble Pipeline Parallelism").
//
// Works on the graph that autograd recorded, for any model. On the path from
// the output to the input lie nodes with a branch that leads to parameters
// only. InputGrad executes the path and none of the branches, and keeps the
// gradient that arrives at each such node; WeightGrad executes these nodes'
// branches from there, and nothing of the path between them. Both halves
// together give the gradients of a fused backward, bit for bit.
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
  // A node on the path to the input, with what arrived at it.
  struct Boundary {
    std::shared_ptr<torch::autograd::Node> node;
    std::shared_ptr<std::vector<at::Tensor>> gradients;  // one per input
  };

  // Finds the boundaries and has them keep what arrives.
  void WatchBoundaries(
      const std::unordered_map<torch::autograd::Node*, bool>& reaches_input);

  torch::autograd::Edge root_;
  at::Tensor input_;
  std::vector<Boundary> boundaries_;
};

// Not thread-safe. Knows nothing of other stages: undefined tensors stand for
// what the first stage has not (input, its gradient) or the last (gradient of
// the output, which is the loss). Throws where an action comes before the one
// it builds on, and what the stage throws.
class StageRunner {
 public:
  // `stage` must outlive it. `recompute`: keep only the input after F, and run
  // F again before the backward.
  StageRunner(Stage* stage, bool is_last, bool recompute);

  // F, with `tensor` the input, whose bytes are shared: returns the output,
  // detached. B or I, with the gradient of the output: returns the input's. W,
  // after I: takes and returns nothing.
  at::Tensor Perform(ActionKind kind, int micro_batch,
                     const at::Tensor& tensor);
  // F without gradients; keeps nothing.
  at::Tensor Evaluate(int micro_batch, const at::Tensor& input);

  const Stage& stage() const { return *stage_; }

 private:
  // Of a micro-batch between its F and its B or W.
  struct Kept {
    at::Tensor input;   // a leaf that requires a gradient
    at::Tensor output;  // with its graph; undefined while to be recomputed
    std::unique_ptr<SplitBackward> backward;  // between I and W
  };

  at::Tensor Forward(int micro_batch, const at::Tensor& input);
  at::Tensor Backward(int micro_batch, Kept kept,
                      const at::Tensor& grad_output);
  at::Tensor InputGrad(int micro_batch, Kept& kept,
                       const at::Tensor& grad_output);
  // The stage's output, checked against what it announced.
  at::Tensor Compute(int micro_batch, const at::Tensor& input);
  void CheckAnnounced(int micro_batch, const at::Tensor& output) const;
  at::Tensor OutputOf(int micro_batch, const Kept& kept);
  at::Tensor RootGradient(const at::Tensor& output,
                          const at::Tensor& grad_output) const;

  Stage* stage_;
  bool is_last_, recompute_;
  std::unordered_map<int, Kept> kept_;  // by micro-batch
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_STAGE_RUNNER_H_
