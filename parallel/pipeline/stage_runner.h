// What F, B, I and W do to one stage, and what is kept between them.
#ifndef RANKWISE_PARALLEL_PIPELINE_STAGE_RUNNER_H_
#define RANKWISE_PARALLEL_PIPELINE_STAGE_RUNNER_H_

#include <memory>
#include <unordered_map>

#include "ATen/core/Tensor.h"
#include "parallel/pipeline/split_backward.h"
#include "parallel/pipeline/stage.h"

namespace rankwise {

// Not thread-safe. Knows nothing of other stages: undefined tensors stand for
// what the first stage has not (input, its gradient) or the last (gradient of
// the output, which is the loss). Throws where an action comes before the one
// it builds on, and what the stage throws.
class StageRunner {
 public:
  // `stage` must outlive it. `recompute`: keep only the input after F, and run
  // F again before the backward.
  StageRunner(Stage* stage, bool is_last, bool recompute);

  // F. Shares the bytes of `input`; returns the output, detached.
  at::Tensor Forward(int micro_batch, const at::Tensor& input);
  // B. Returns the input's gradient.
  at::Tensor Backward(int micro_batch, const at::Tensor& grad_output);
  // I. Returns the input's gradient.
  at::Tensor InputGrad(int micro_batch, const at::Tensor& grad_output);
  // W, after I.
  void WeightGrad(int micro_batch);
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

  Kept& Find(int micro_batch);
  // The stage's output, checked against what it announced.
  at::Tensor Compute(int micro_batch, const at::Tensor& input);
  void CheckAnnounced(int micro_batch, const at::Tensor& output) const;
  // Compute once more.
  at::Tensor Recompute(int micro_batch, const at::Tensor& input);
  // The output with its graph, recomputed if need be.
  const at::Tensor& OutputOf(int micro_batch, Kept& kept);
  at::Tensor RootGradient(const at::Tensor& output,
                          const at::Tensor& grad_output) const;

  Stage* stage_;
  bool is_last_, recompute_;
  std::unordered_map<int, Kept> kept_;  // by micro-batch
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_STAGE_RUNNER_H_
