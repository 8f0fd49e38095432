// Compares the formulas with figures computed by hand.
#include "trainers/memory/computed_memory.h"

#include <gtest/gtest.h>

namespace rankwise {
namespace {

constexpr c10::DeviceType kCpu = c10::DeviceType::CPU;

// One block of 32 features and a head, for 8 tokens.
ModelConfig SmallGpt() {
  ModelConfig config;
  config.name = "gpt";
  config.depth = 1;
  config.width = 32;
  config.sequence_length = 8;
  return config;
}

TrainConfig ConfigOf(const ModelConfig& model) {
  TrainConfig config;
  config.model = model;
  config.data.batch_size = 2;
  config.optimizer.name = "adamw";
  return config;
}

MemoryParts Compute(const TrainConfig& config,
                    const ModelPlacement& placement = {},
                    c10::DeviceType device = kCpu) {
  const auto model = MakeModelSpec(config.model);
  EXPECT_TRUE(model.ok()) << model.status();
  return ComputeMemory(config, device, *model, placement);
}

TEST(ComputeMemoryTest, ParametersGradientsAndAdamsState) {
  const MemoryParts parts = Compute(ConfigOf(SmallGpt()));
  // Embeddings, 12 h^2 + 13 h of the block, the last norm; the head is tied.
  constexpr int64_t kNumbers = 256 * 32 + 8 * 32 + (12 * 1024 + 13 * 32) + 64;
  EXPECT_EQ(parts.parameter_bytes, 4 * kNumbers);
  EXPECT_EQ(parts.gradient_bytes, 4 * kNumbers);
  EXPECT_EQ(parts.optimizer_bytes, 8 * kNumbers + 4 * (2 + 12 + 2));
  EXPECT_EQ(parts.unsharded_bytes, 0);
}

TEST(ComputeMemoryTest, OptimizersKeepWhatTheyNeed) {
  TrainConfig config = ConfigOf({.name = "linear"});
  EXPECT_EQ(Compute(config).optimizer_bytes, 2 * 4 * 11 + 2 * 4);
  config.optimizer.name = "sgd";
  EXPECT_EQ(Compute(config).optimizer_bytes, 0);
  config.optimizer.momentum = 0.9;
  EXPECT_EQ(Compute(config).optimizer_bytes, 4 * 11);
}

// Per token: 16 h in the block, 4 for its norms, 1 for its head; 2 h + 2 for
// the last norm and the head; 256 log-probabilities.
TEST(ComputeMemoryTest, ActivationsAreThoseOfKorthikantisTable) {
  constexpr int64_t kTokens = 2 * 8;
  EXPECT_EQ(Compute(ConfigOf(SmallGpt())).activation_bytes,
            kTokens * 4 * ((16 * 32 + 4 + 1) + (2 * 32 + 2) + 256));
}

TEST(ComputeMemoryTest, Bf16HalvesAllButTheResidualStreamAndCopiesWeights) {
  TrainConfig config = ConfigOf(SmallGpt());
  config.precision = Precision::kBf16;
  constexpr int64_t kTokens = 2 * 8;
  constexpr int64_t kWide = (2 * 32 + 4 + 1) + (32 + 2) + 256;
  constexpr int64_t kWeights = 12 * 32 * 32 + 256 * 32;
  const MemoryParts parts = Compute(config);
  EXPECT_EQ(parts.activation_bytes,
            kTokens * (4 * kWide + 2 * (14 * 32 + 32)) + 2 * kWeights);
  EXPECT_EQ(parts.parameter_bytes,
            Compute(ConfigOf(SmallGpt())).parameter_bytes);
}

// The residual stream and the norms' statistics are then 16-bit, too, if norms
// store no copies; attention's row sums and the logits stay fp32.
TEST(ComputeMemoryTest, Bf16ParametersMakeTheResidualStreamAsNarrow) {
  TrainConfig config = ConfigOf(SmallGpt());
  config.precision = Precision::kBf16;
  ModelPlacement placement;
  placement.sharding.config = {.stage = 3, .parameter_type = at::kBFloat16};
  constexpr int64_t kTokens = 2 * 8;
  constexpr int64_t kStream = 2 * 32 + 4 + 32 + 2;
  constexpr int64_t kOthers = 2 * (14 * 32 + 32) + 4 * (1 + 256);
  EXPECT_EQ(Compute(config, placement).activation_bytes,
            kTokens * (2 * kStream + kOthers));
  EXPECT_EQ(Compute(config, placement, c10::DeviceType::CUDA).activation_bytes,
            kTokens * (4 * kStream + kOthers));
}

TEST(ComputeMemoryTest, TensorParallelRanksHaveTheirPartOfTable2) {
  ModelConfig model = SmallGpt();
  model.width = 64;  // two heads
  model.split.tensor = 2;
  constexpr int64_t kTokens = 2 * 8, h = 64;
  // 4 h and the norms' statistics on every rank; 12 h and heads are divided.
  EXPECT_EQ(Compute(ConfigOf(model)).activation_bytes,
            kTokens * 4 * ((4 * h + 4 + 6 * h + 1) + (2 * h + 2) + 128));
  model.split.sequence = true;
  EXPECT_EQ(Compute(ConfigOf(model)).activation_bytes,
            kTokens * 4 * ((2 * h + 2 + 6 * h + 1) + (h + 1) + 128));
}

TEST(ComputeMemoryTest, DropoutOnACpuKeepsAttentionsWeights) {
  TrainConfig config = ConfigOf(SmallGpt());
  const int64_t without = Compute(config).activation_bytes;
  config.model.dropout = 0.1;
  constexpr int64_t kTokens = 2 * 8;
  // Masks of the embedding and of both sublayers; three per pair of 8 tokens.
  EXPECT_EQ(Compute(config).activation_bytes - without,
            kTokens * 4 * (3 * 32 + 3 * 8));
  EXPECT_EQ(
      Compute(config, {}, c10::DeviceType::CUDA).activation_bytes - without,
      kTokens * 3 * 32);
}

TEST(ComputeMemoryTest, AStageHasItsLayersAndACopyOfATiedWeight) {
  ModelPlacement last;
  last.layers = {{2, 4}};  // norm and head
  last.activation_bytes = 5;
  const MemoryParts parts = Compute(ConfigOf(SmallGpt()), last);
  EXPECT_EQ(parts.parameter_bytes, 4 * (64 + 256 * 32));
  EXPECT_EQ(parts.activation_bytes, 5);
}

// Weights [2048, 1024] and [1024, 2048] among 3 ranks: 683 and 342 rows.
TEST(ComputeMemoryTest, ZeroDividesStageByStage) {
  const TrainConfig config = ConfigOf({.name = "mp_mlp"});
  constexpr int64_t kWhole = 2 * 2048 * 1024 + 2048 + 1024;
  constexpr int64_t kShard = 683 * 1024 + 683 + 342 * 2048 + 342;
  for (int stage = 0; stage <= 3; ++stage) {
    ModelPlacement placement;
    placement.sharding = {.config = {.stage = stage}, .ranks = 3};
    const MemoryParts parts = Compute(config, placement);
    EXPECT_EQ(parts.optimizer_bytes,
              8 * (stage >= 1 ? kShard : kWhole) + 4 * 4);
    EXPECT_EQ(parts.gradient_bytes, 4 * (stage >= 2 ? kShard : kWhole));
    EXPECT_EQ(parts.parameter_bytes, 4 * (stage >= 3 ? kShard : kWhole));
  }
}

// With bf16 gathering, the optimizer's rows and their gradients are separate
// fp32 tensors.
TEST(ComputeMemoryTest, Bf16ParametersHaveRowsOfTheirOwn) {
  TrainConfig config = ConfigOf({.name = "mp_mlp"});
  config.precision = Precision::kBf16;
  constexpr int64_t kWhole = 2 * 2048 * 1024 + 2048 + 1024, kRows = kWhole / 2;
  const int64_t parameters[] = {2 * kWhole + 4 * kRows, 2 * kWhole + 4 * kRows,
                                4 * kRows};
  const int64_t gradients[] = {2 * kWhole + 4 * kRows, 4 * kRows, 4 * kRows};
  for (int stage = 1; stage <= 3; ++stage) {
    ModelPlacement placement;
    placement.sharding = {
        .config = {.stage = stage, .parameter_type = at::kBFloat16},
        .ranks = 2};
    const MemoryParts parts = Compute(config, placement);
    EXPECT_EQ(parts.parameter_bytes, parameters[stage - 1]);
    EXPECT_EQ(parts.gradient_bytes, gradients[stage - 1]);
    EXPECT_EQ(parts.optimizer_bytes, 8 * kRows + 4 * 4);
  }
}

// mlp: weights [1024, 3072], three [1024, 1024], [10, 1024] and biases, each a
// unit.
TEST(ComputeMemoryTest, BuffersOfUnitsThatLiveAtOnce) {
  TrainConfig config = ConfigOf({.name = "mlp", .depth = 4, .width = 1024});
  constexpr int64_t kFirst = 4 * 1024 * 3073, kOther = 4 * 1024 * 1025;
  const auto unsharded = [&](const ShardingConfig& sharding) {
    ModelPlacement placement;
    placement.sharding = {.config = sharding, .ranks = 2};
    return Compute(config, placement).unsharded_bytes;
  };
  // In backward: the first unit's parameters and their all-gather output, or
  // its gradients; and the reduce-scatter inputs of the units after it.
  EXPECT_EQ(unsharded({.stage = 3, .prefetch = 0}), 2 * kFirst + kOther);
  EXPECT_EQ(unsharded({.stage = 3, .prefetch = 1}), 2 * kFirst + 2 * kOther);
  // Its gradients and their reduce-scatter inputs, and those of the next units.
  EXPECT_EQ(unsharded({.stage = 2, .prefetch = 0}), 2 * kFirst);
  EXPECT_EQ(unsharded({.stage = 2, .prefetch = 2}), 2 * kFirst + 2 * kOther);
  // Excludes full gradients.
  EXPECT_EQ(unsharded({.stage = 1, .prefetch = 1}), kFirst + kOther);
  // Full gradients of all units until the last micro-batch, and one more unit;
  // or of one unit at a time.
  config.accumulate = 2;
  EXPECT_EQ(unsharded({.stage = 2, .prefetch = 0}), kFirst + 4 * kOther);
  EXPECT_EQ(
      unsharded({.stage = 2, .prefetch = 0, .reduce_every_micro_batch = true}),
      2 * kFirst);
}

}  // namespace
}  // namespace rankwise
