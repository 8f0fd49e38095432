#include "parallel/ddp/model_state.h"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/test_ranks.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/embedding.h"

namespace rankwise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Registers a tensor of another module.
struct Tied : torch::nn::Module {
  explicit Tied(const at::Tensor& shared) {
    register_parameter("weight", shared);
  }
};

struct Block : torch::nn::Module {
  Block() {
    register_module("norm", torch::nn::BatchNorm1d(3));
    register_parameter("gain", at::ones({3}));
  }
};

struct Net : torch::nn::Module {
  Net() {
    auto table = register_module(
        "table",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 4).sparse(true)));
    register_parameter("own", at::ones({1}));
    register_module("block", std::make_shared<Block>());
    register_module("twin", std::make_shared<Tied>(table->weight));
  }
};

std::vector<std::string> Names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& item : tensors) names.push_back(item.name);
  return names;
}

// Net is deliberately not held by a shared_ptr.
TEST(ModelStateTest, OwnTensorsComeBeforeChildrensAndSharedOnesOnce) {
  Net net;
  EXPECT_THAT(Names(ModelParameters(net)),
              ElementsAre("own", "table.weight", "block.gain",
                          "block.norm.weight", "block.norm.bias"));
  EXPECT_THAT(Names(ModelBuffers(net)),
              ElementsAre("block.norm.running_mean", "block.norm.running_var",
                          "block.norm.num_batches_tracked"));
}

TEST(ModelStateTest, KnowsWhichGradientsAreSparse) {
  Net net;
  for (const NamedTensor& item : ModelParameters(net)) {
    EXPECT_EQ(item.sparse_gradient, item.name == "table.weight") << item.name;
  }
}

TEST(ModelStateTest, GivesTheTensorsThemselvesNotCopies) {
  Net net;
  at::NoGradGuard no_grad;
  ModelParameters(net)[0].tensor.fill_(7);
  EXPECT_EQ(ModelParameters(net)[0].tensor.item<float>(), 7);
}

TEST(BroadcastTest, GivesEveryRankTheFirstOnes) {
  OnRanks(3, [](Communicator& comm) {
    const at::Tensor mean = at::full({4}, comm.rank() + 0.5);
    const at::Tensor batches = at::full({}, 10 + comm.rank(), at::kLong);
    const std::vector<at::Tensor> both = {mean, batches};
    BroadcastFromFirst(both, comm.world());
    EXPECT_TRUE(mean.equal(at::full({4}, 0.5)));
    EXPECT_EQ(batches.item<int64_t>(), 10);
    EXPECT_EQ(BroadcastFromFirst(both, Group()).Wait(), 0);
  });
}

struct AnyNet : torch::nn::Module {
  void Add(const std::string& name, torch::IntArrayRef shape,
           torch::Dtype dtype = torch::kFloat, bool trained = true) {
    register_parameter(name, at::zeros(shape, dtype), trained);
  }
};

// Builds a model per rank and returns the refusal, which all ranks must share.
std::string Refusal(int world_size,
                    const std::function<void(AnyNet&, int rank)>& build) {
  std::vector<std::string> messages(world_size);
  OnRanks(world_size, [&](Communicator& comm) {
    AnyNet net;
    build(net, comm.rank());
    messages[comm.rank()] = VerifyModel(net, comm.world()).ToString();
  });
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
  return messages[0];
}

TEST(VerifyModelTest, AcceptsEqualModelsWhateverTheirValues) {
  for (int world_size : {1, 2, 3}) {
    EXPECT_EQ(Refusal(world_size,
                      [](AnyNet& net, int rank) {
                        net.Add("a", {2, 3});
                        net.register_buffer("b", at::full({2}, rank));
                      }),
              "OK");
  }
}

TEST(VerifyModelTest, NamesAShape) {
  EXPECT_THAT(Refusal(3,
                      [](AnyNet& net, int rank) {
                        net.Add("a", {2});
                        net.Add("c", {rank + 1});
                      }),
              HasSubstr("parameter 'c' is Float [1] on rank 0 and Float [2] "
                        "on rank 1"))
      << "the first of the differing ranks";
}

TEST(VerifyModelTest, NamesTheFirstParameterInOrder) {
  EXPECT_THAT(Refusal(3,
                      [](AnyNet& net, int rank) {
                        net.Add("a", {rank == 2 ? 4 : 3, 5});
                        net.Add("b", {rank + 1});
                      }),
              HasSubstr("'a' is Float [3, 5] on rank 0 and Float [4, 5] on "
                        "rank 2"));
}

TEST(VerifyModelTest, NamesADtype) {
  EXPECT_THAT(Refusal(2,
                      [](AnyNet& net, int rank) {
                        net.Add("a", {2},
                                rank == 0 ? torch::kFloat : torch::kDouble);
                      }),
              HasSubstr("'a' is Float [2] on rank 0 and Double [2] on rank 1"));
}

TEST(VerifyModelTest, NamesAName) {
  EXPECT_THAT(Refusal(2,
                      [](AnyNet& net, int rank) {
                        net.Add("a", {2});
                        net.Add(rank == 0 ? "left" : "right", {2});
                      }),
              HasSubstr("tensor 2 is parameter 'left', Float [2] on rank 0 (of "
                        "2) and parameter 'right', Float [2] on rank 1 (of "
                        "2)"));
}

TEST(VerifyModelTest, NamesAParameterThatOneRankLacks) {
  EXPECT_THAT(Refusal(2,
                      [](AnyNet& net, int rank) {
                        net.Add("a", {2});
                        if (rank == 0) net.Add("b", {7});
                      }),
              HasSubstr("tensor 2 is parameter 'b', Float [7] on rank 0 (of 2) "
                        "and missing on rank 1 (of 1)"));
  EXPECT_THAT(Refusal(2,
                      [](AnyNet& net, int rank) {
                        if (rank == 1) net.Add("b", {7});
                      }),
              HasSubstr("missing on rank 0 (of 0) and parameter 'b'"));
}

TEST(VerifyModelTest, NamesAFrozenParameter) {
  EXPECT_THAT(
      Refusal(2, [](AnyNet& net,
                    int rank) { net.Add("a", {2}, torch::kFloat, rank == 0); }),
      HasSubstr("Float [2] without gradient on rank 1"));
}

TEST(VerifyModelTest, NamesABuffer) {
  EXPECT_THAT(Refusal(2,
                      [](AnyNet& net, int rank) {
                        net.Add("a", {2});
                        net.register_buffer("mean", at::zeros({3 + rank}));
                      }),
              HasSubstr("buffer 'mean' is Float [3] on rank 0 and Float [4]"));
}

TEST(VerifyModelTest, NamesAMemoryLayout) {
  EXPECT_THAT(
      Refusal(2,
              [](AnyNet& net, int rank) {
                const auto format = rank == 0 ? at::MemoryFormat::Contiguous
                                              : at::MemoryFormat::ChannelsLast;
                net.register_parameter(
                    "kernel", at::zeros({2, 3, 4, 4}).contiguous(format));
              }),
      HasSubstr("'kernel' is Float [2, 3, 4, 4] on rank 0 and Float [2, 3, 4, "
                "4] with strides [48, 1, 12, 3] on rank 1"));
}

absl::Status Check(int world_size,
                   const std::function<void(TestNet&, int rank)>& disturb) {
  std::vector<absl::Status> statuses(world_size);
  OnRanks(world_size, [&](Communicator& comm) {
    TestNet net;
    at::NoGradGuard no_grad;
    disturb(net, comm.rank());
    statuses[comm.rank()] = CheckDivergence(net, comm.world());
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, statuses[0]);
  return statuses[0];
}

TEST(DivergenceTest, EqualParametersAreFine) {
  for (int world_size : {1, 2, 3, 4}) {
    EXPECT_TRUE(Check(world_size, [](TestNet&, int) {}).ok());
  }
}

TEST(DivergenceTest, BuffersMayDiffer) {
  EXPECT_TRUE(
      Check(2, [](TestNet& net, int rank) { net.scale.fill_(rank); }).ok());
}

TEST(DivergenceTest, NamesTheFirstParameterAndTheOddRank) {
  const absl::Status status = Check(4, [](TestNet& net, int rank) {
    if (rank != 2) return;
    net.last->bias[1] += 1e-7;
    net.second->weight[3][4] += 1e-7;
  });
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.ToString(),
              HasSubstr("'second.weight' differs on rank 2 from the other 3 of "
                        "4 ranks"));
}

TEST(DivergenceTest, RankZeroMayBeTheOddOne) {
  EXPECT_THAT(Check(3,
                    [](TestNet& net, int rank) {
                      if (rank == 0) net.first->weight.zero_();
                    })
                  .ToString(),
              HasSubstr("'first.weight' differs on rank 0 from the other 2"));
}

TEST(DivergenceTest, WithoutAMajorityRankZeroIsRight) {
  EXPECT_THAT(
      Check(2, [](TestNet& net, int rank) { net.extra->bias.fill_(rank); })
          .ToString(),
      HasSubstr("'extra.bias' differs on rank 1 from the other 1 of 2"));
  EXPECT_THAT(
      Check(3, [](TestNet& net, int rank) { net.extra->bias.fill_(rank); })
          .ToString(),
      HasSubstr("'extra.bias' differs on rank 1, 2"));
}

TEST(DivergenceTest, NotANumberIsEqualToItself) {
  EXPECT_TRUE(Check(2, [](TestNet& net, int) {
                net.last->bias.fill_(std::nan(""));
              }).ok());
}

TEST(FingerprintTest, ChangesWithEveryByteAndWithTheLength) {
  std::set<uint64_t> seen;
  for (size_t size : {0, 1, 7, 8, 31, 32, 33, 100}) {
    std::string bytes(size, '\0');
    EXPECT_TRUE(seen.insert(FingerprintBytes(bytes.data(), size)).second);
    for (char& byte : bytes) {
      for (int bit = 0; bit < 8; ++bit) {
        byte = static_cast<char>(1 << bit);
        EXPECT_TRUE(seen.insert(FingerprintBytes(bytes.data(), size)).second);
      }
      byte = 0;
    }
  }
}

TEST(FingerprintTest, SeesOneFlippedBitOfATensor) {
  at::Tensor x = at::ones({1000});
  const uint64_t before = FingerprintTensor(x);
  EXPECT_EQ(FingerprintTensor(x.clone()), before);
  x[517] += 1e-7;
  EXPECT_NE(FingerprintTensor(x), before);
}

TEST(FingerprintTest, DoesNotDependOnTheMemoryLayout) {
  const at::Tensor x = at::arange(2 * 3 * 4 * 5).view({2, 3, 4, 5});
  EXPECT_EQ(FingerprintTensor(x.contiguous(at::MemoryFormat::ChannelsLast)),
            FingerprintTensor(x));
}

}  // namespace
}  // namespace rankwise
