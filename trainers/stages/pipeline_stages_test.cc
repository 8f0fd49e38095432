#include "trainers/stages/pipeline_stages.h"

#include <ATen/Context.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <memory>

#include "absl/strings/match.h"

namespace rankwise {
namespace {

// A tied GPT with an embedding, two blocks, a norm and a head, cut in two.
class ModelStageTest : public ::testing::Test {
 protected:
  ModelStageTest() {
    ModelConfig config;
    config.name = "gpt";
    config.depth = 2;
    config.width = 32;
    config.sequence_length = 6;
    config.dropout = 0.5;
    spec_ = *MakeModelSpec(config);
    at::manual_seed(1);
    model_ = std::make_shared<Model>(spec_);
    for (int64_t rows : {3, 2}) {
      batches_.push_back(
          {at::randint(spec_.num_classes, {rows, 6}, at::kLong),
           at::randint(spec_.num_classes, {rows, 6}, at::kLong)});
    }
    const size_t layers = spec_.layers.size();
    first_ = std::make_unique<ModelStage>(*model_, spec_,
                                          ModelStageConfig{.layers = {0, 2}});
    last_ = std::make_unique<ModelStage>(
        *model_, spec_, ModelStageConfig{.layers = {2, layers}});
    const auto keep = [](int, const torch::Tensor& output) { return output; };
    first_->Begin(batches_, {7, 8}, keep);
    last_->Begin(batches_, {7, 8}, keep);
  }

  torch::Tensor Chain(int micro_batch) {
    return last_->Forward(micro_batch, first_->Forward(micro_batch, {}));
  }

  ModelSpec spec_;
  std::shared_ptr<Model> model_;
  std::vector<Batch> batches_;
  std::unique_ptr<ModelStage> first_, last_;
};

TEST_F(ModelStageTest, ChainedStagesAreTheWholeModel) {
  for (int i : {0, 1}) {
    model_->set_dropout_seed(7 + static_cast<uint64_t>(i));
    const torch::Tensor whole =
        model_->Forward(batches_[static_cast<size_t>(i)].data);
    EXPECT_TRUE(Chain(i).equal(whole)) << i;
  }
}

TEST_F(ModelStageTest, MasksDoNotDependOnTheOrderOfMicroBatches) {
  const torch::Tensor before = Chain(0);
  Chain(1);
  EXPECT_TRUE(Chain(0).equal(before));
  first_->Begin(batches_, {9, 8}, nullptr);
  EXPECT_FALSE(Chain(0).equal(before));
}

TEST_F(ModelStageTest, ShapesFollowTheMicroBatch) {
  EXPECT_EQ(first_->OutputShape(0), (std::vector<int64_t>{3, 6, 32}));
  EXPECT_EQ(last_->InputShape(1), (std::vector<int64_t>{2, 6, 32}));
}

TEST(TryForwardTest, FindsTheTypeAndChangesNothing) {
  const ModelSpec spec = *MakeModelSpec({.name = "simple_cnn_bn"});
  Model model(spec);
  ModelStageConfig config{.layers = {0, 2}, .precision = Precision::kBf16};
  const torch::Tensor input = at::ones({1, 3, 32, 32});
  EXPECT_EQ(TryForward(model, config, input).scalar_type(), at::kBFloat16);
  config.precision = Precision::kFp32;
  EXPECT_EQ(TryForward(model, config, input).scalar_type(), at::kFloat);
  EXPECT_TRUE(model.is_training());
  const ModelStage stage(model, spec, config);
  // Mean, variance and count of each norm.
  ASSERT_EQ(stage.Buffers().size(), 6u);
  for (const auto& entry : model.named_buffers()) {
    const double untouched = absl::EndsWith(entry.key(), "var") ? 1 : 0;
    EXPECT_TRUE(entry.value().eq(untouched).all().item<bool>()) << entry.key();
  }
}

TEST_F(ModelStageTest, ATiedWeightBelongsToBothStages) {
  const torch::Tensor tied = model_->named_parameters()[spec_.ties.at(0).name];
  const auto has_tied = [&](const ModelStage& stage) {
    for (const torch::Tensor& parameter : stage.Parameters()) {
      if (parameter.is_same(tied)) return true;
    }
    return false;
  };
  EXPECT_TRUE(has_tied(*first_));
  EXPECT_TRUE(has_tied(*last_));
  EXPECT_EQ(first_->Parameters().size() + last_->Parameters().size(),
            model_->parameters().size() + 1);
}

}  // namespace
}  // namespace rankwise
