// The F, B, I and W actions of one stage, and the state between them.
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

// The backward pass in two halves: first the gradient of the input, which the
// previous stage needs, and later the gradients of the parameters, which
// nothing waits for. Zero-bubble schedules fill idle time with the second half
// (Qi et al. 2024, "Zero Bubble Pipeline Parallelism").
//
// Works on the recorded autograd graph of any model. Some nodes on the path
// from the output to the input have branches that lead only to parameters.
// InputGrad executes the path without these branches and stores the gradient
// that arrives at each such node; WeightGrad executes the branches from there,
// without the path. Together both halves yield the gradients of a fused
// backward, bit for bit.
//
//   SplitBackward backward(output, input);
//   Send(backward.InputGrad(grad_output));
//   ...
//   backward.WeightGrad();
class SplitBackward {
 public:
  // `output` must require a gradient and have its graph; no other backward may
  // use that graph. `input` is a leaf that requires a gradient, or undefined:
  // then InputGrad computes nothing and WeightGrad computes the whole backward.
  SplitBackward(const at::Tensor& output, const at::Tensor& input);

  // Returns d loss / d input, shaped like the input: zeros if the output does
  // not depend on it; undefined without an input. `grad_output` is shaped like
  // the output. Call once. Frees the parts of the graph that only the input
  // gradient needed.
  at::Tensor InputGrad(const at::Tensor& grad_output);

  // Accumulates the gradients of all other leaves into their .grad() and frees
  // the rest of the graph. Call once, after InputGrad.
  void WeightGrad();

 private:
  // A node on the path to the input, with the gradients that arrived at it.
  struct Boundary {
    std::shared_ptr<torch::autograd::Node> node;
    std::shared_ptr<std::vector<at::Tensor>> gradients;  // one per input
  };

  // Finds the boundaries and hooks them to store the arriving gradients.
  void WatchBoundaries(
      const std::unordered_map<torch::autograd::Node*, bool>& reaches_input);

  torch::autograd::Edge root_;
  at::Tensor input_;
  std::vector<Boundary> boundaries_;
};

// Not thread-safe. Independent of other stages: undefined tensors replace those
// that the first stage lacks (input and its gradient) or the last (gradient of
// the output, which is the loss). Throws if an action precedes one that it
// depends on; rethrows the stage's exceptions.
class StageRunner {
 public:
  // `stage` must outlive the runner. `recompute`: store only the input after F,
  // and run F again before the backward.
  StageRunner(Stage* stage, bool is_last, bool recompute);

  // F: takes the input, whose storage is shared, and returns the detached
  // output. B or I: takes the gradient of the output and returns that of the
  // input. W, after I: takes and returns nothing.
  at::Tensor Perform(ActionKind kind, int micro_batch,
                     const at::Tensor& tensor);
  // Runs F without gradients and stores nothing.
  at::Tensor Evaluate(int micro_batch, const at::Tensor& input);

  const Stage& stage() const { return *stage_; }

 private:
  // State of a micro-batch between its F and its B or W.
  struct Kept {
    at::Tensor input;   // a leaf that requires a gradient
    at::Tensor output;  // with its graph; undefined if it is to be recomputed
    std::unique_ptr<SplitBackward> backward;  // between I and W
  };

  at::Tensor Forward(int micro_batch, const at::Tensor& input);
  at::Tensor Backward(int micro_batch, Kept kept,
                      const at::Tensor& grad_output);
  at::Tensor InputGrad(int micro_batch, Kept& kept,
                       const at::Tensor& grad_output);
  // Returns the stage's output after checking its announced shape and type.
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
