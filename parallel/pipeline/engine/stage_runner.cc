#include "parallel/pipeline/engine/stage_runner.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/zeros_like.h"
#include "c10/util/Exception.h"
#include "parallel/device/run_again.h"
#include "torch/csrc/autograd/autograd.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"

namespace rankwise {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// By node below `root`, whether a path leads from it to `target`.
using Reaches = std::unordered_map<Node*, bool>;

Reaches FindPaths(Node* root, Node* target) {
  Reaches reaches;
  std::vector<std::pair<Node*, size_t>> stack = {{root, 0}};  // depth first
  reaches[root] = root == target;
  while (!stack.empty()) {
    Node* const node = stack.back().first;
    if (stack.back().second == node->num_outputs()) {
      stack.pop_back();
      if (!stack.empty() && reaches[node]) reaches[stack.back().first] = true;
      continue;
    }
    Node* const next = node->next_edge(stack.back().second++).function.get();
    if (next == nullptr) continue;
    const auto [known, is_new] = reaches.emplace(next, next == target);
    if (is_new) {
      stack.emplace_back(next, 0);
    } else if (known->second) {
      reaches[node] = true;
    }
  }
  return reaches;
}

bool HasBranch(const Node& node, const Reaches& reaches) {
  for (const Edge& edge : node.next_edges()) {
    if (edge.is_valid() && !reaches.at(edge.function.get())) return true;
  }
  return false;
}

class KeepGradients : public torch::autograd::FunctionPreHook {
 public:
  explicit KeepGradients(std::shared_ptr<variable_list> gradients)
      : gradients_(std::move(gradients)) {}
  variable_list operator()(const variable_list& gradients) override {
    *gradients_ = gradients;
    return gradients;
  }

 private:
  std::shared_ptr<variable_list> gradients_;
};

// Frees the tensors that nodes between boundaries saved. The nodes themselves
// may survive: tensors saved by boundaries refer to the nodes that made them.
void ReleasePath(const Reaches& reaches) {
  for (const auto& [node, on_path] : reaches) {
    if (on_path && !HasBranch(*node, reaches)) node->release_variables();
  }
}

// The path has run; without these edges the engine sees only branches.
void CutPath(Node& boundary, const Reaches& reaches) {
  for (Edge& edge : boundary.next_edges()) {
    if (edge.is_valid() && reaches.at(edge.function.get())) edge = Edge();
  }
}

}  // namespace

SplitBackward::SplitBackward(const at::Tensor& output, const at::Tensor& input)
    : root_(torch::autograd::impl::gradient_edge(output)), input_(input) {
  TORCH_CHECK(root_.is_valid(),
              "the output of the stage does not require a gradient: it depends "
              "neither on the stage's input nor on a parameter");
}

at::Tensor SplitBackward::InputGrad(const at::Tensor& grad_output) {
  const at::Tensor input = std::move(input_);
  const Edge root = std::move(root_);
  Edge target;
  if (input.defined()) target = torch::autograd::impl::gradient_edge(input);
  const Reaches reaches = FindPaths(root.function.get(), target.function.get());
  if (!reaches.at(root.function.get())) {
    auto gradients = std::make_shared<variable_list>(root.input_nr + 1);
    gradients->back() = grad_output;
    boundaries_.push_back({root.function, std::move(gradients)});
    return input.defined() ? at::zeros_like(input) : at::Tensor();
  }
  WatchBoundaries(reaches);
  const variable_list gradients =
      torch::autograd::Engine::get_default_engine().execute(
          {root}, {grad_output}, /*keep_graph=*/true, /*create_graph=*/false,
          /*accumulate_grad=*/false, {target});
  ReleasePath(reaches);
  for (const Boundary& boundary : boundaries_) {
    boundary.node->pre_hooks().pop_back();
    CutPath(*boundary.node, reaches);
  }
  return gradients[0].defined() ? gradients[0] : at::zeros_like(input);
}

void SplitBackward::WatchBoundaries(
    const std::unordered_map<Node*, bool>& reaches_input) {
  for (const auto& [node, on_path] : reaches_input) {
    if (!on_path || !HasBranch(*node, reaches_input)) continue;
    boundaries_.push_back({node->getptr(), std::make_shared<variable_list>()});
    node->add_pre_hook(
        std::make_unique<KeepGradients>(boundaries_.back().gradients));
  }
}

void SplitBackward::WeightGrad() {
  torch::autograd::edge_list roots;
  variable_list gradients;
  for (const Boundary& boundary : boundaries_) {
    for (uint32_t i = 0; i < boundary.gradients->size(); ++i) {
      if (!boundary.gradients->at(i).defined()) continue;
      roots.emplace_back(boundary.node, i);
      gradients.push_back(std::move(boundary.gradients->at(i)));
    }
  }
  boundaries_.clear();
  if (roots.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(
      roots, gradients, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/true);
}

StageRunner::StageRunner(Stage* stage, bool is_last, bool recompute)
    : stage_(stage), is_last_(is_last), recompute_(recompute) {}

at::Tensor StageRunner::Perform(ActionKind kind, int micro_batch,
                                const at::Tensor& tensor) {
  if (kind == ActionKind::kForward) return Forward(micro_batch, tensor);
  const auto found = kept_.find(micro_batch);
  TORCH_CHECK(found != kept_.end(), "backward of micro-batch ", micro_batch,
              " before its forward, or twice");
  if (kind == ActionKind::kInputGrad)
    return InputGrad(micro_batch, found->second, tensor);
  Kept kept = std::move(found->second);
  kept_.erase(found);
  if (kind == ActionKind::kBackward)
    return Backward(micro_batch, std::move(kept), tensor);
  if (kept.backward != nullptr) kept.backward->WeightGrad();
  return at::Tensor();
}

at::Tensor StageRunner::Forward(int micro_batch, const at::Tensor& input) {
  Kept kept;
  if (input.defined()) kept.input = input.detach().requires_grad_();
  const at::AutoGradMode grad_mode(!recompute_);
  const at::Tensor output = Compute(micro_batch, kept.input);
  if (!recompute_) kept.output = output;
  const bool is_new = kept_.emplace(micro_batch, std::move(kept)).second;
  TORCH_CHECK(is_new, "forward of micro-batch ", micro_batch, " ran twice");
  return output.detach();
}

at::Tensor StageRunner::Backward(int micro_batch, Kept kept,
                                 const at::Tensor& grad_output) {
  const at::Tensor output = OutputOf(micro_batch, kept);
  // A first stage without parameters has nothing to compute.
  if (!output.requires_grad()) return at::Tensor();
  torch::autograd::backward({output}, {RootGradient(output, grad_output)});
  if (!kept.input.defined()) return at::Tensor();
  const at::Tensor& gradient = kept.input.grad();
  return gradient.defined() ? gradient : at::zeros_like(kept.input);
}

at::Tensor StageRunner::InputGrad(int micro_batch, Kept& kept,
                                  const at::Tensor& grad_output) {
  TORCH_CHECK(kept.backward == nullptr, "I of micro-batch ", micro_batch,
              " ran twice");
  const at::Tensor output = OutputOf(micro_batch, kept);
  kept.output.reset();
  const at::Tensor input = std::move(kept.input);
  if (!output.requires_grad()) return at::Tensor();
  kept.backward = std::make_unique<SplitBackward>(output, input);
  return kept.backward->InputGrad(RootGradient(output, grad_output));
}

at::Tensor StageRunner::Evaluate(int micro_batch, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  at::Tensor output = stage_->Forward(micro_batch, input);
  if (!is_last_) CheckAnnounced(micro_batch, output);
  return output;
}

at::Tensor StageRunner::Compute(int micro_batch, const at::Tensor& input) {
  at::Tensor output = stage_->Forward(micro_batch, input);
  if (is_last_) {
    TORCH_CHECK(output.dim() == 0,
                "the last stage must return its share of the loss, a scalar; "
                "it returned a tensor of shape ",
                output.sizes());
  } else {
    CheckAnnounced(micro_batch, output);
  }
  return output;
}

// The next stage's rank waits for exactly this many bytes.
void StageRunner::CheckAnnounced(int micro_batch,
                                 const at::Tensor& output) const {
  const std::vector<int64_t> shape = stage_->OutputShape(micro_batch);
  const at::ScalarType type = stage_->OutputType();
  TORCH_CHECK(output.sizes() == shape && output.scalar_type() == type,
              "a stage announced an output of shape ", at::IntArrayRef(shape),
              " and type ", type, " for micro-batch ", micro_batch,
              " and returned ", output.sizes(), " of type ",
              output.scalar_type());
}

// Returns the output with its graph, recomputed if only the input was stored.
at::Tensor StageRunner::OutputOf(int micro_batch, const Kept& kept) {
  if (kept.output.defined()) return kept.output;
  return RunAgain(stage_->Buffers(), [&] {
    const at::AutoGradMode grad_mode(true);
    return Compute(micro_batch, kept.input);
  });
}

at::Tensor StageRunner::RootGradient(const at::Tensor& output,
                                     const at::Tensor& grad_output) const {
  return is_last_ ? at::ones_like(output) : grad_output;
}

}  // namespace rankwise
