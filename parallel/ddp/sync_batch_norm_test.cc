#include "parallel/ddp/sync_batch_norm.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/test_ranks.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/test_sync_batch_norm.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/container/moduledict.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/linear.h"

namespace rankwise {
namespace {

using testing::HasSubstr;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNormOptions;

torch::Tensor Rows(int rank, int64_t rows, int64_t channels = 3) {
  at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(100 + rank);
  return at::randn({rows, channels}, generator) * (rank + 1) + rank;
}

torch::Tensor AllRows(int world_size, int64_t rows) {
  std::vector<torch::Tensor> all;
  for (int rank = 0; rank < world_size; ++rank) all.push_back(Rows(rank, rows));
  return at::cat(all);
}

double Difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// A converted layer and an unconverted one.
struct Pair {
  explicit Pair(const BatchNormOptions& options, Communicator& comm)
      : whole(options), model(BatchNorm1d(options)) {
    EXPECT_EQ(*ConvertToSyncBatchNorm(*model, comm.world()), 1);
  }
  void ExpectSameBuffers() {
    const auto buffers = ModelBuffers(*model), want = ModelBuffers(*whole);
    ASSERT_EQ(buffers.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(buffers[i].name, "0." + want[i].name);
      EXPECT_LT(Difference(buffers[i].tensor, want[i].tensor), 1e-5)
          << want[i].name;
    }
  }
  BatchNorm1d whole;
  torch::nn::Sequential model;
};

TEST(SyncBatchNormTest, KeepsTheRunningStatisticsOfTheWholeBatch) {
  const BatchNormOptions by_mean = BatchNormOptions(3).momentum(std::nullopt);
  for (const BatchNormOptions& options :
       {BatchNormOptions(3), BatchNormOptions(3).momentum(0.3), by_mean}) {
    OnRanks(2, [&](Communicator& comm) {
      Pair pair(options, comm);
      for (int64_t rows : {2, 5, 3}) {
        const torch::Tensor want = pair.whole(AllRows(2, rows));
        const torch::Tensor got = pair.model->forward(Rows(comm.rank(), rows));
        EXPECT_LT(Difference(got, want.narrow(0, comm.rank() * rows, rows)),
                  1e-5);
      }
      pair.ExpectSameBuffers();
    });
  }
}

TEST(SyncBatchNormTest, ALoneValueLeavesTheRunningStatisticsAlone) {
  OnRanks(2, [](Communicator& comm) {
    Pair pair(BatchNormOptions(3), comm);
    pair.model->forward(Rows(0, comm.rank()));
    pair.model->forward(Rows(0, 0));
    const auto buffers = ModelBuffers(*pair.model);
    EXPECT_EQ(buffers[0].tensor.abs().max().item<double>(), 0);
    EXPECT_EQ(buffers[1].tensor.sum().item<double>(), 3);
    EXPECT_EQ(buffers[2].tensor.item<int64_t>(), 2);
  });
}

TEST(SyncBatchNormTest, EvaluatesByRunningStatisticsWithoutTheOthers) {
  OnRanks(2, [](Communicator& comm) {
    Pair pair(BatchNormOptions(3), comm);
    pair.model->eval();
    pair.whole->eval();
    if (comm.rank() == 1) return;  // a collective would hang
    const torch::Tensor x = Rows(0, 4);
    EXPECT_EQ(Difference(pair.model->forward(x), pair.whole(x)), 0);
  });
}

TEST(SyncBatchNormTest, WithoutRunningStatisticsEvaluatesByItsOwnBatch) {
  OnRanks(2, [](Communicator& comm) {
    Pair pair(BatchNormOptions(3).track_running_stats(false), comm);
    const torch::Tensor want = pair.whole(AllRows(2, 4));
    EXPECT_LT(Difference(pair.model->forward(Rows(comm.rank(), 4)),
                         want.narrow(0, comm.rank() * 4, 4)),
              1e-5);
    pair.ExpectSameBuffers();
    pair.model->eval();
    pair.whole->eval();
    if (comm.rank() == 1) return;
    const torch::Tensor x = Rows(0, 4);
    EXPECT_EQ(Difference(pair.model->forward(x), pair.whole(x)), 0);
  });
}

TEST(SyncBatchNormTest, AloneIsBatchNorm) {
  OnRanks(1, [](Communicator& comm) {
    Pair pair(BatchNormOptions(3).momentum(std::nullopt), comm);
    for (int64_t rows : {2, 5}) {
      const torch::Tensor x = Rows(0, rows);
      EXPECT_EQ(Difference(pair.model->forward(x), pair.whole(x)), 0);
    }
    pair.ExpectSameBuffers();
    EXPECT_THAT(ErrorOf([&] { pair.model->forward(Rows(0, 1)); }),
                HasSubstr("more than 1 value per channel"));
  });
}

// Layers in every kind of container, including one that two modules share.
struct Nested : torch::nn::Module {
  Nested() {
    const BatchNorm1d shared(3);
    sequence->push_back("norm", shared);
    sequence->push_back("linear", torch::nn::Linear(3, 3));
    list->push_back(BatchNorm1d(BatchNormOptions(3).affine(false)));
    dict->update({{"norm", shared.ptr()}});
    register_module("sequence", sequence);
    register_module("list", list);
    register_module("dict", dict);
    register_module("named", BatchNorm1d(3).ptr())->eval();
  }
  torch::nn::Sequential sequence;
  torch::nn::ModuleList list;
  torch::nn::ModuleDict dict;
};

std::vector<std::string> Names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& item : tensors) names.push_back(item.name);
  return names;
}

TEST(ConvertToSyncBatchNormTest, KeepsTensorsNamesAndMode) {
  OnRanks(1, [](Communicator& comm) {
    Nested model;
    const auto parameters = ModelParameters(model);
    const auto buffers = ModelBuffers(model);
    const auto converted = ConvertToSyncBatchNorm(model, comm.world());
    ASSERT_TRUE(converted.ok()) << converted.status();
    EXPECT_EQ(*converted, 3);
    const auto after = ModelParameters(model);
    EXPECT_EQ(Names(after), Names(parameters));
    EXPECT_EQ(Names(ModelBuffers(model)), Names(buffers));
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_TRUE(after[i].tensor.is_same(parameters[i].tensor));
      EXPECT_TRUE(after[i].tensor.requires_grad());
    }
    for (const auto& module : model.modules(/*include_self=*/false))
      EXPECT_EQ(module->as<BatchNorm1d>(), nullptr);
    EXPECT_NE(model.list[0]->as<SyncBatchNorm>(), nullptr);
    EXPECT_EQ(model.dict["norm"], model.sequence->ptr(0));
    EXPECT_FALSE(model.named_children()["named"]->is_training());
    EXPECT_TRUE(model.list[0]->is_training());
  });
}

struct HeldByType : torch::nn::Module {
  HeldByType() : norm(register_module("norm", BatchNorm1d(3))) {}
  BatchNorm1d norm;
};

TEST(ConvertToSyncBatchNormTest, RefusesALayerThatWouldGoOnBeingCalled) {
  OnRanks(1, [](Communicator& comm) {
    torch::nn::Sequential model;
    model->push_back(torch::nn::Linear(3, 3));
    model->register_module("block", std::make_shared<HeldByType>());
    const auto converted = ConvertToSyncBatchNorm(*model, comm.world());
    EXPECT_EQ(converted.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(converted.status().message()),
                HasSubstr("batch norm 'block.norm' cannot be replaced"));
    BatchNorm1d alone(3);
    EXPECT_EQ(ConvertToSyncBatchNorm(*alone, comm.world()).status().code(),
              absl::StatusCode::kFailedPrecondition);
  });
}

TEST(ConvertToSyncBatchNormTest, AModelWithoutBatchNormStaysAsItIs) {
  OnRanks(1, [](Communicator& comm) {
    torch::nn::Sequential model(torch::nn::Linear(3, 3));
    EXPECT_EQ(*ConvertToSyncBatchNorm(*model, comm.world()), 0);
  });
}

using SyncBatchNormFunctionTest = testing::TestWithParam<int>;

TEST_P(SyncBatchNormFunctionTest, EqualsBatchNormOfTheWholeBatch) {
  OnRanks(GetParam(), [&](Communicator& comm) {
    for (const NormCase& c : NormCases(GetParam())) {
      ExpectSame(c, NormalizeShare(c, comm),
                 NormalizeWhole(c, comm.rank(), comm.device()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SyncBatchNormFunctionTest,
                         testing::Values(1, 2, 4));

TEST(SyncBatchNormFunctionTest, ABatchOfOneValueHasNoVariance) {
  OnRanks(2, [](Communicator& comm) {
    const SyncedBatch batch = SyncBatchNormForward(at::ones({comm.rank(), 3}),
                                                   {}, {}, 1e-5, comm.world());
    EXPECT_EQ(batch.moments.unbiased_variance.abs().max().item<double>(), 0);
    EXPECT_EQ(batch.moments.count.item<double>(), 1);
  });
}

TEST(SyncBatchNormFunctionTest, RefusesWhatItCannotNormalise) {
  OnRanks(1, [](Communicator& comm) {
    const auto error = [&](const at::Tensor& x, const at::Tensor& weight = {}) {
      return ErrorOf(
          [&] { SyncBatchNormForward(x, weight, {}, 1e-5, comm.world()); });
    };
    EXPECT_THAT(error(at::ones({3})), HasSubstr("got Float [3]"));
    EXPECT_THAT(error(at::ones({3, 0})), HasSubstr("one channel"));
    EXPECT_THAT(error(at::ones({3, 2}, at::kLong)),
                HasSubstr("floating-point"));
    EXPECT_THAT(error(at::ones({3, 2}), at::ones({2})),
                HasSubstr("both a weight and a bias"));
  });
}

TEST(SyncBatchNormFunctionTest, HasNoSecondDerivative) {
  OnRanks(1, [](Communicator& comm) {
    const at::Tensor x = at::ones({3, 2}).set_requires_grad(true);
    const at::Tensor y =
        SyncBatchNormForward(x, {}, {}, 1e-5, comm.world()).output;
    EXPECT_THAT(ErrorOf([&] {
                  y.sum().backward({}, /*retain_graph=*/true,
                                   /*create_graph=*/true);
                }),
                HasSubstr("no second derivative"));
  });
}

}  // namespace
}  // namespace rankwise
