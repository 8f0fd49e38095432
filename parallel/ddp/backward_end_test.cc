#include "parallel/ddp/backward_end.h"

#include "ATen/Functions.h"
#include "gtest/gtest.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/types.h"

namespace rankwise {
namespace {

torch::autograd::Engine& Engine() {
  return torch::autograd::Engine::get_default_engine();
}

TEST(BackwardEndTest, LiesBetweenTheGradientsAndWhatIsQueuedWithThem) {
  const torch::Tensor weight = at::ones({4}).requires_grad_();
  BackwardEnd end(at::kCPU);
  std::optional<Moment> gradient, waiting;
  // As c10d::Reducer does with the last gradient.
  weight.register_hook([&](const torch::Tensor&) {
    gradient.emplace(at::kCPU);
    Engine().queue_callback([&] { waiting.emplace(at::kCPU); });
  });
  const torch::Tensor loss = (weight * 2).sum();
  end.Watch(loss);
  loss.backward();
  const std::optional<Moment> own = end.Take();
  ASSERT_TRUE(own.has_value() && gradient.has_value() && waiting.has_value());
  EXPECT_GE(SecondsBetween(*gradient, *own), 0);
  EXPECT_GE(SecondsBetween(*own, *waiting), 0);
  EXPECT_FALSE(end.Take().has_value()) << "once";
}

TEST(BackwardEndTest, IsNotThereWithoutABackward) {
  BackwardEnd end(at::kCPU);
  EXPECT_FALSE(end.Take().has_value());
  const torch::Tensor weight = at::ones({4}).requires_grad_();
  end.Watch(weight.sum());
  EXPECT_FALSE(end.Take().has_value());
  end.Watch(at::ones({}));
  EXPECT_FALSE(end.Take().has_value()) << "needs no gradient";
}

}  // namespace
}  // namespace rankwise
