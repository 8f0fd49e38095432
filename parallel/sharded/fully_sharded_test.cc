#include "parallel/sharded/fully_sharded.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/autograd/autograd.h"
#include "torch/nn/module.h"
#include "torch/nn/modules/embedding.h"
#include "torch/optim/sgd.h"

namespace rankwise {
namespace {

using testing::HasSubstr;
using Named = std::vector<std::pair<std::string, torch::Tensor>>;

constexpr int64_t kExamples = 12;  // in a global batch
constexpr double kLearningRate = 0.1;

// Sections that no number of ranks divides; the last reuses the first's weight.
class Net : public torch::nn::Module {
 public:
  Net() {
    // Not the default generator, which the ranks' threads share.
    at::Generator generator = at::detail::createCPUGenerator(5);
    const auto draw = [&, this](const std::string& name,
                                std::vector<int64_t> shape,
                                bool trained = true) {
      return register_parameter(name, at::randn(shape, generator) * 0.5,
                                trained);
    };
    first = draw("first", {5, 3});
    first_bias = draw("first_bias", {5});
    middle = draw("middle", {7, 5});
    unused = draw("unused", {2, 2});
    frozen = draw("frozen", {5, 7}, /*trained=*/false);
  }

  std::vector<UnitSpec> Units() const {
    return {{"first", {first, first_bias}},
            {"middle", {middle, unused}},
            {"frozen", {frozen}}};
  }
  std::vector<std::vector<torch::Tensor>> Sections() const {
    return {{first, first_bias}, {middle}, {frozen}, {first}};
  }
  torch::Tensor Section(size_t section, const torch::Tensor& x) const {
    switch (section) {
      case 0:
        return at::linear(x, first, first_bias).tanh();
      case 1:
        return at::linear(x, middle).tanh();
      case 2:
        return at::linear(x, frozen).tanh();
      default:
        return at::matmul(x, first);
    }
  }

  torch::Tensor first, first_bias, middle, unused, frozen;
};

constexpr size_t kSections = 4;

// Returns the examples of part `part` of `parts` in step `step`.
torch::Tensor Inputs(int step, int64_t part, int64_t parts) {
  at::Generator generator = at::detail::createCPUGenerator(step + 1);
  return at::randn({kExamples, 3}, generator)
      .chunk(parts)[static_cast<size_t>(part)];
}

void Update(const Named& owned) {
  const at::NoGradGuard no_grad;
  for (auto [name, parameter] : owned) {
    if (!parameter.grad().defined()) continue;
    parameter.sub_(parameter.grad(), kLearningRate);
    parameter.mutable_grad().reset();
  }
}

struct Training {
  ShardingConfig config;
  int shard_ranks = 0;  // 0 for all
  int micro_batches = 1;
};

constexpr int kSteps = 4;

// Returns the parameters that one process trains.
Named TrainWhole() {
  Net net;
  Named owned;
  for (const auto& entry : net.named_parameters()) {
    if (entry.value().requires_grad())
      owned.emplace_back(entry.key(), entry.value());
  }
  for (int step = 0; step < kSteps; ++step) {
    torch::Tensor x = Inputs(step, 0, 1);
    for (size_t i = 0; i < kSections; ++i) x = net.Section(i, x);
    x.square().mean().backward();
    Update(owned);
  }
  return owned;
}

std::unique_ptr<FullyShardedDataParallel> Shard(Net& net, Communicator& comm,
                                                const Training& training) {
  const Group line = comm.world();
  const int shard_ranks =
      training.shard_ranks == 0 ? line.size() : training.shard_ranks;
  auto engine = FullyShardedDataParallel::Create(
      net, net.Units(), line, *DivideLine(line, shard_ranks), training.config);
  TORCH_CHECK(engine.ok(), engine.status().ToString());
  for (const auto& section : net.Sections()) (*engine)->AddSection(section);
  return *std::move(engine);
}

torch::Tensor Forward(const Net& net, FullyShardedDataParallel& engine,
                      torch::Tensor x) {
  for (size_t i = 0; i < kSections; ++i) {
    x = engine.Run(
        i, [&](const torch::Tensor& in) { return net.Section(i, in); }, x);
  }
  return x;
}

void ComputeGradients(const Net& net, FullyShardedDataParallel& engine,
                      int step, const Group& line, int micro_batches) {
  for (int i = 0; i < micro_batches; ++i) {
    engine.SetSync(i + 1 == micro_batches);
    engine.BeforeForward();
    const torch::Tensor x = Inputs(step, line.place() * micro_batches + i,
                                   line.size() * micro_batches);
    const torch::Tensor loss =
        Forward(net, engine, x).square().mean() / micro_batches;
    engine.BeforeBackward({loss});
    loss.backward();
    engine.AfterBackward();
  }
}

void TrainStep(const Net& net, FullyShardedDataParallel& engine, int step,
               const Group& line, int micro_batches) {
  ComputeGradients(net, engine, step, line, micro_batches);
  Update(engine.Owned());
}

// Compares the rank's rows to those of `whole`, by name.
void ExpectRowsOf(const Named& whole, const FullyShardedDataParallel& engine) {
  size_t found = 0;
  for (const auto& unit : engine.units()) {
    for (const ShardedParameter& parameter : unit->parameters()) {
      for (const auto& [name, value] : whole) {
        if (name != parameter.name) continue;
        ++found;
        const torch::Tensor rows =
            value.narrow(0, parameter.begin, parameter.rows.size(0));
        EXPECT_TRUE(at::allclose(parameter.rows, rows, 1e-5, 1e-6))
            << name << "\n"
            << parameter.rows << rows;
      }
    }
  }
  EXPECT_EQ(found, whole.size());
}

class ZeroTest : public testing::TestWithParam<int> {};

TEST_P(ZeroTest, TrainsAsOneProcess) {
  const Named whole = TrainWhole();
  ShardingConfig config{.stage = GetParam()};
  ShardingConfig ahead = config;
  ahead.prefetch = 3;
  ShardingConfig not_ahead = config;
  not_ahead.prefetch = 0;
  ShardingConfig eager = config;
  eager.reduce_every_micro_batch = config.stage > 1;
  ShardingConfig offloaded = eager;
  offloaded.offload = true;
  const std::vector<std::pair<int, Training>> trainings = {
      {1, {config}},         {2, {config}},       {3, {ahead}},
      {4, {not_ahead, 2}},   {2, {config, 0, 3}}, {2, {eager, 0, 3}},
      {2, {config, 1}},      {4, {eager, 2, 3}},  {3, {offloaded}},
      {2, {offloaded, 0, 3}}};
  for (const auto& [ranks, training] : trainings) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", training.micro_batches,
                              " micro-batches"));
    OnRanks(ranks, [&](Communicator& comm) {
      Net net;
      const auto engine = Shard(net, comm, training);
      for (int step = 0; step < kSteps; ++step)
        TrainStep(net, *engine, step, comm.world(), training.micro_batches);
      ExpectRowsOf(whole, *engine);
    });
  }
}

TEST_P(ZeroTest, EvaluatesWithTheUpdatedParameters) {
  OnRanks(2, [&](Communicator& comm) {
    Net net;
    const auto engine = Shard(net, comm, {{.stage = GetParam()}});
    const auto evaluate = [&] {
      const at::NoGradGuard no_grad;
      return Forward(net, *engine, Inputs(9, 0, 1));
    };
    TrainStep(net, *engine, 0, comm.world(), 1);
    const torch::Tensor once = evaluate();
    EXPECT_TRUE(once.equal(evaluate()));
    TrainStep(net, *engine, 1, comm.world(), 1);
    EXPECT_FALSE(once.equal(evaluate()));
  });
}

TEST_P(ZeroTest, KeepsMastersInFp32WhereParametersAreBf16) {
  const Net fresh;
  Named masters;
  for (const auto& entry : fresh.named_parameters())
    masters.emplace_back(entry.key(), entry.value());
  OnRanks(2, [&](Communicator& comm) {
    Net net;
    const auto engine = Shard(
        net, comm,
        {{.stage = GetParam(), .parameter_type = torch::ScalarType::BFloat16}});
    EXPECT_EQ(net.middle.scalar_type(), torch::ScalarType::BFloat16);
    ExpectRowsOf(masters, *engine);
    for (const auto& [name, rows] : engine->Owned())
      EXPECT_EQ(rows.scalar_type(), torch::ScalarType::Float) << name;
    engine->BeforeForward();
    const torch::Tensor y =
        Forward(net, *engine, Inputs(0, 0, 1).to(torch::ScalarType::BFloat16));
    EXPECT_EQ(y.scalar_type(), torch::ScalarType::BFloat16);
    const torch::Tensor loss = y.square().mean();
    engine->BeforeBackward({loss});
    loss.backward();
    engine->AfterBackward();
    for (const auto& [name, rows] : engine->Owned())
      EXPECT_EQ(rows.grad().scalar_type(), torch::ScalarType::Float) << name;
  });
}

// A bf16 sum stops at 256, because 257 rounds to it.
TEST_P(ZeroTest, SumsMicroBatchesOfBf16ParametersInFp32) {
  constexpr int kMicroBatches = 512;
  for (const bool take_turns : {false, true}) {
    OnRanks(2, [&](Communicator& comm) {
      torch::nn::Module net;
      const torch::Tensor weight =
          net.register_parameter("weight", at::ones({4, 4}));
      const Group line = comm.world();
      auto engine = FullyShardedDataParallel::Create(
          net, {{"weight", {weight}}}, line, *DivideLine(line, 2),
          {.stage = GetParam(),
           .parameter_type = torch::ScalarType::BFloat16,
           .interleave_micro_batches = take_turns});
      ASSERT_TRUE(engine.ok()) << engine.status();
      (*engine)->AddSection({weight});
      for (int i = 0; i < kMicroBatches; ++i) {
        (*engine)->SetSync(i + 1 == kMicroBatches);
        if (i == 0 || !take_turns) (*engine)->BeforeForward();
        const torch::Tensor loss = (*engine)->Run(
            0, [&](const torch::Tensor& x) { return (weight * x).sum(); },
            at::ones({4, 4}, torch::ScalarType::BFloat16));
        if (!take_turns) (*engine)->BeforeBackward({loss});
        loss.backward();
        if (!take_turns) (*engine)->AfterBackward();
      }
      if (take_turns) {
        (*engine)->Start({weight});
        (*engine)->Finish();
      }
      const torch::Tensor gradient = (*engine)->RowsOf(weight).grad();
      EXPECT_TRUE(gradient.equal(at::full({2, 4}, double{kMicroBatches})))
          << gradient;
    });
  }
}

// torch's optimizers detach the gradients in zero_grad().
TEST_P(ZeroTest, TrainsWithAnOptimizerOfTorch) {
  const Named whole = TrainWhole();
  for (bool set_to_none : {true, false}) {
    OnRanks(2, [&](Communicator& comm) {
      Net net;
      const auto engine = Shard(net, comm, {{.stage = GetParam()}});
      std::vector<torch::Tensor> owned;
      for (const auto& [name, rows] : engine->Owned()) owned.push_back(rows);
      torch::optim::SGD sgd(owned, kLearningRate);
      for (int step = 0; step < kSteps; ++step) {
        ComputeGradients(net, *engine, step, comm.world(), 1);
        sgd.step();
        sgd.zero_grad(set_to_none);
      }
      ExpectRowsOf(whole, *engine);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroTest, testing::Values(1, 2, 3),
                         [](const auto& stage) {
                           return absl::StrCat("Zero", stage.param);
                         });

// A chain of equal units.
class Chain : public torch::nn::Module {
 public:
  explicit Chain(int length) {
    for (int i = 0; i < length; ++i) {
      weights.push_back(
          register_parameter(absl::StrCat("weight_", i), at::ones({4, 4})));
    }
  }
  std::vector<torch::Tensor> weights;
};

struct ChainSeen {
  int peak_units = 0;
  int64_t peak_bytes = 0;
  std::vector<int64_t> misses;
};

ChainSeen RunChain(int length, int prefetch) {
  ChainSeen seen;
  OnRanks(2, [&](Communicator& comm) {
    Chain chain(length);
    std::vector<UnitSpec> units;
    for (const torch::Tensor& weight : chain.weights)
      units.push_back({absl::StrCat("unit_", units.size()), {weight}});
    const Group line = comm.world();
    auto engine = FullyShardedDataParallel::Create(
        chain, units, line, *DivideLine(line, 2), {.prefetch = prefetch});
    ASSERT_TRUE(engine.ok()) << engine.status();
    for (const torch::Tensor& weight : chain.weights)
      (*engine)->AddSection({weight});
    for (int step = 0; step < 2; ++step) {
      (*engine)->TakeUnitWaits();
      (*engine)->BeforeForward();
      torch::Tensor x = at::ones({2, 4});
      for (size_t i = 0; i < chain.weights.size(); ++i) {
        x = (*engine)->Run(
            i,
            [&](const torch::Tensor& in) {
              return at::matmul(in, chain.weights[i]) * 0.1;
            },
            x);
      }
      const torch::Tensor loss = x.sum();
      (*engine)->BeforeBackward({loss});
      loss.backward();
      (*engine)->AfterBackward();
    }
    // Only the rank's own rows are left.
    EXPECT_THAT(ErrorOf([&] { chain.weights[1].sum(); }),
                HasSubstr("the parameter weight_1 has no values here"));
    EXPECT_THAT(ErrorOf([&] { chain.weights[0].detach()[1].zero_(); }),
                HasSubstr("the parameter weight_0 has no values here"));
    if (comm.rank() != 0) return;
    seen.peak_units = (*engine)->peak_gathered_units();
    seen.peak_bytes = (*engine)->unsharded_bytes().peak;
    for (const UnitWaits& unit : (*engine)->TakeUnitWaits())
      seen.misses.push_back(unit.prefetch_misses);
  });
  return seen;
}

TEST(FullySharded, NoMoreUnitsLiveThanThoseGatheredAhead) {
  for (int prefetch : {0, 1, 2}) {
    const ChainSeen seen = RunChain(6, prefetch);
    EXPECT_EQ(seen.peak_units, prefetch + 1);
    // Gathered units, plus a buffer for each gather or reduction.
    EXPECT_LE(seen.peak_bytes, (prefetch + 1) * 4 * 64);
  }
  EXPECT_EQ(RunChain(12, 1).peak_bytes, RunChain(6, 1).peak_bytes);
}

TEST(FullySharded, CountsTheUnitsThatWereNotGatheredAhead) {
  // Without prefetch: all units in forward; in backward all but the last, which
  // stays gathered.
  EXPECT_EQ(RunChain(4, 0).misses, std::vector<int64_t>({2, 2, 2, 1}));
  EXPECT_EQ(RunChain(4, 1).misses, std::vector<int64_t>({1, 0, 0, 0}));
}

// As in a pipeline whose last action repeats an earlier stage's forward.
TEST(FullySharded, WhatWasGatheredBeforeAnUpdateIsGatheredAgain) {
  OnRanks(2, [](Communicator& comm) {
    Chain chain(2);
    const Group line = comm.world();
    auto engine = FullyShardedDataParallel::Create(
        chain, {{"a", {chain.weights[0]}}, {"b", {chain.weights[1]}}}, line,
        *DivideLine(line, 2), {.interleave_micro_batches = true});
    ASSERT_TRUE(engine.ok()) << engine.status();
    for (const torch::Tensor& weight : chain.weights)
      (*engine)->AddSection({weight});
    const auto run = [&](size_t section) {
      return (*engine)->Run(
          section,
          [&](const torch::Tensor& in) {
            return at::matmul(in, chain.weights[section]);
          },
          at::ones({1, 4}));
    };
    (*engine)->BeforeForward();
    run(0).sum().backward();
    EXPECT_TRUE((*engine)->units()[1]->gathered()) << "ahead";
    (*engine)->Start(chain.weights);
    (*engine)->Finish();
    for (auto [name, rows] : (*engine)->Owned()) rows.zero_();
    (*engine)->BeforeForward();
    EXPECT_TRUE(run(1).equal(at::zeros({1, 4})));
  });
}

TEST(FullySharded, RefusesWhatItCannotDivide) {
  OnRanks(2, [](Communicator& comm) {
    const Group line = comm.world();
    Chain chain(2);
    const auto create = [&](const std::vector<UnitSpec>& units) {
      return FullyShardedDataParallel::Create(chain, units, line,
                                              *DivideLine(line, 2), {})
          .status();
    };
    EXPECT_THAT(std::string(create({{"a", {chain.weights[0]}}}).message()),
                HasSubstr("weight_1 belongs to no unit"));
    EXPECT_THAT(
        std::string(
            create({{"a", chain.weights}, {"b", chain.weights}}).message()),
        HasSubstr("weight_0 belongs to several units"));
    EXPECT_THAT(std::string(DivideLine(line, 3).status().message()),
                HasSubstr("among groups of 3 ranks: 2 ranks train"));
  });
  const Group alone;
  torch::nn::Module net;
  const auto table = net.register_module(
      "table",
      torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 4).sparse(true)));
  const absl::Status sparse =
      FullyShardedDataParallel::Create(net, {{"table", {table->weight}}}, alone,
                                       {alone, alone}, {})
          .status();
  EXPECT_EQ(sparse.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sparse.message()),
              HasSubstr("table.weight has sparse gradients"));
  const std::string error = ErrorOf([&] {
    torch::nn::Module module;
    const torch::Tensor scalar = module.register_parameter("s", at::ones({}));
    FullyShardedDataParallel::Create(module, {{"s", {scalar}}}, alone,
                                     {alone, alone}, {})
        .IgnoreError();
  });
  EXPECT_THAT(error, HasSubstr("the parameter s is a scalar"));
}

}  // namespace
}  // namespace rankwise
