#include "parallel/pipeline/split_backward.h"

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "ATen/ops/zeros_like.h"
#include "c10/util/Exception.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"

namespace rankwise {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Per node below `root` whether a way leads from it to `target`.
using Reaches = std::unordered_map<Node*, bool>;

Reaches FindWays(Node* root, Node* target) {
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

// Frees what the nodes between forks saved. The nodes themselves may live on:
// what forks saved refers to the nodes that made it.
void ReleaseWay(const Reaches& reaches) {
  for (const auto& [node, on_way] : reaches) {
    if (on_way && !HasBranch(*node, reaches)) node->release_variables();
  }
}

// The way is done: without these edges the engine has only branches left.
void CutWay(Node& fork, const Reaches& reaches) {
  for (Edge& edge : fork.next_edges()) {
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
  const Reaches reaches = FindWays(root.function.get(), target.function.get());
  if (!reaches.at(root.function.get())) {
    auto gradients = std::make_shared<variable_list>(root.input_nr + 1);
    gradients->back() = grad_output;
    forks_.push_back({root.function, std::move(gradients)});
    return input.defined() ? at::zeros_like(input) : at::Tensor();
  }
  WatchForks(reaches);
  const variable_list gradients =
      torch::autograd::Engine::get_default_engine().execute(
          {root}, {grad_output}, /*keep_graph=*/true, /*create_graph=*/false,
          /*accumulate_grad=*/false, {target});
  ReleaseWay(reaches);
  for (const Fork& fork : forks_) {
    fork.node->pre_hooks().pop_back();
    CutWay(*fork.node, reaches);
  }
  return gradients[0].defined() ? gradients[0] : at::zeros_like(input);
}

void SplitBackward::WatchForks(
    const std::unordered_map<Node*, bool>& reaches_input) {
  for (const auto& [node, on_way] : reaches_input) {
    if (!on_way || !HasBranch(*node, reaches_input)) continue;
    forks_.push_back({node->getptr(), std::make_shared<variable_list>()});
    node->add_pre_hook(
        std::make_unique<KeepGradients>(forks_.back().gradients));
  }
}

void SplitBackward::WeightGrad() {
  torch::autograd::edge_list roots;
  variable_list gradients;
  for (const Fork& fork : forks_) {
    for (uint32_t i = 0; i < fork.gradients->size(); ++i) {
      if (!fork.gradients->at(i).defined()) continue;
      roots.emplace_back(fork.node, i);
      gradients.push_back(std::move(fork.gradients->at(i)));
    }
  }
  forks_.clear();
  if (roots.empty()) return;
  torch::autograd::Engine::get_default_engine().execute(
      roots, gradients, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/true);
}

}  // namespace rankwise
