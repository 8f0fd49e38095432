// Behavior specific to the engine on c10d::Reducer.
#include "parallel/ddp/distributed_data_parallel.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/mesh.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/order/bucket_fill.h"
#include "parallel/ddp/test_ranks.h"
#include "parallel/launch/rank_env.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/embedding.h"

namespace rankwise {
namespace {

using testing::HasSubstr;
using Ddp = DistributedDataParallel;

std::unique_ptr<Ddp> Make(torch::nn::Module& module, const Group& group,
                          const DdpConfig& config = {}) {
  auto ddp = Ddp::Create(module, group, config);
  TORCH_CHECK(ddp.ok(), ddp.status().ToString());
  return *std::move(ddp);
}

std::unique_ptr<Ddp> Make(torch::nn::Module& module, Communicator& comm,
                          const DdpConfig& config = {}) {
  return Make(module, comm.world(), config);
}

// Trains one process on all ranks' rows; `used` selects the steps and ranks
// that use the extra layer.
using Used = std::function<bool(int step, int rank)>;

std::unique_ptr<TestNet> TrainAlone(int steps, int world_size,
                                    const Used& used) {
  auto net = std::make_unique<TestNet>();
  for (int step = 0; step < steps; ++step) {
    ZeroGradients(*net);
    for (int rank = 0; rank < world_size; ++rank) {
      (LossOf(*net, BatchOf(step, rank), used(step, rank)) / world_size)
          .backward();
    }
    Descend(*net);
  }
  return net;
}

void ExpectEqualToAlone(int world_size, const DdpConfig& config,
                        const Used& used) {
  constexpr int kSteps = 4;
  const auto alone = TrainAlone(kSteps, world_size, used);
  OnRanks(world_size, [&](Communicator& comm) {
    TestNet net;
    auto ddp = Make(net, comm, config);
    for (int step = 0; step < kSteps; ++step) {
      ZeroGradients(net);
      Backward(net, *ddp, BatchOf(step, comm.rank()), used(step, comm.rank()));
      Descend(net);
    }
    EXPECT_LT(Distance(Values(net), Values(*alone)), 1e-6);
  });
}

TEST(DdpTest, DefaultsArePyTorchs) {
  const DdpConfig config;
  EXPECT_EQ(config.bucket_cap_bytes, 25 * 1024 * 1024);
  EXPECT_EQ(config.first_bucket_bytes, 1024 * 1024);
}

TEST(DdpTest, ManySmallBuckets) {
  for (int world_size : {1, 2, 3}) {
    ExpectEqualToAlone(world_size, {.bucket_cap_bytes = 4},
                       [](int, int) { return true; });
  }
  OnRanks(2, [](Communicator& comm) {
    TestNet net;
    auto ddp = Make(net, comm, {.bucket_cap_bytes = 4});
    EXPECT_EQ(ddp->bucket_bytes().size(), 1) << "until gradients have an order";
    Backward(net, *ddp, BatchOf(0, comm.rank()));
    Backward(net, *ddp, BatchOf(1, comm.rank()));
    EXPECT_EQ(ddp->bucket_bytes().size(), net.parameters().size());
  });
}

// Returns the bucket sizes, in reduction order, for layers of `layer_bytes`
// (multiples of 64).
std::vector<int64_t> BucketsOf(const std::vector<int64_t>& layer_bytes,
                               const DdpConfig& config) {
  std::vector<int64_t> bytes;
  OnRanks(2, [&](Communicator& comm) {
    torch::nn::ModuleList layers;
    for (const int64_t layer : layer_bytes) {
      layers->push_back(torch::nn::Linear(
          torch::nn::LinearOptions(16, layer / 64).bias(false)));
    }
    auto ddp = Make(*layers, comm, config);
    for (int step = 0; step < 3; ++step) {
      ddp->BeforeForward();
      torch::Tensor loss = at::zeros({1});
      torch::Tensor x = at::ones({2, 16});
      for (const auto& layer : *layers) {
        const torch::Tensor y = layer->as<torch::nn::Linear>()->forward(x);
        loss = loss + y.sum();
        x = x + y.mean();  // so that the layers' gradients arrive in order
      }
      ddp->BeforeBackward({loss});
      loss.backward();
      ddp->AfterBackward();
    }
    if (comm.rank() == 0) bytes = ddp->bucket_bytes();
  });
  return bytes;
}

std::vector<int64_t> BucketsOfEightKib(const DdpConfig& config) {
  return BucketsOf(std::vector<int64_t>(8, 1024), config);
}

TEST(DdpTest, TheFirstBucketIsSmallerThanTheOthers) {
  EXPECT_THAT(
      BucketsOfEightKib({.bucket_cap_bytes = 3072, .first_bucket_bytes = 1024}),
      testing::ElementsAre(1024, 3072, 3072, 1024));
}

TEST(DdpTest, BucketFillFollowsTheReducer) {
  const std::vector<int64_t> even(8, 1024),
      uneven = {64, 1024, 4096, 128, 128, 1024, 6400, 256};
  for (const std::vector<int64_t>& layers : {even, uneven}) {
    for (const auto& [first, cap] :
         {std::pair(500, 500), std::pair(1024, 3072), std::pair(1500, 2500),
          std::pair(3000, 3000)}) {
      BucketFill fill(first, cap);
      std::vector<int64_t> bytes;
      for (size_t i = layers.size(); i-- > 0;)
        bytes.push_back(fill.Add(layers[i]));
      bytes.push_back(fill.Take());
      bytes.erase(std::remove(bytes.begin(), bytes.end(), 0), bytes.end());
      EXPECT_EQ(BucketsOf(layers, {.bucket_cap_bytes = cap,
                                   .first_bucket_bytes = first}),
                bytes)
          << first << ", " << cap;
    }
  }
}

TEST(DdpTest, TheLastBucketIsSmallWhereAskedFor) {
  const auto with_last = [](int64_t bytes) {
    return BucketsOfEightKib({.bucket_cap_bytes = 6144,
                              .first_bucket_bytes = 1024,
                              .last_bucket_bytes = bytes});
  };
  EXPECT_THAT(with_last(0), testing::ElementsAre(1024, 6144, 1024));
  // Parameters are not split: a last one above the limit stays in its bucket.
  EXPECT_THAT(with_last(512), testing::ElementsAre(1024, 6144, 1024));
  const auto two_buckets = [](int64_t bytes) {
    return BucketsOfEightKib({.bucket_cap_bytes = 7168,
                              .first_bucket_bytes = 1024,
                              .last_bucket_bytes = bytes});
  };
  EXPECT_THAT(two_buckets(0), testing::ElementsAre(1024, 7168));
  EXPECT_THAT(two_buckets(2500), testing::ElementsAre(1024, 5120, 2048));
  EXPECT_THAT(two_buckets(512), testing::ElementsAre(1024, 7168));
  EXPECT_THAT(two_buckets(1 << 20), testing::ElementsAre(1024, 7168));
}

TEST(DdpTest, ASplitBucketTrainsAndIsTakenUpAgain) {
  const DdpConfig config{.last_bucket_bytes = 384};
  ExpectEqualToAlone(2, config, [](int, int) { return true; });
  OnRanks(2, [&](Communicator& comm) {
    TestNet net;
    auto ddp = Make(net, comm, config);
    for (int step = 0; step < 2; ++step)
      Backward(net, *ddp, BatchOf(step, comm.rank()));
    ASSERT_EQ(ddp->bucket_bytes().size(), 2);
    auto resumed = Make(net, comm, config);
    resumed->UseBucketOrder(ddp->BucketOrder());
    EXPECT_EQ(resumed->bucket_bytes(), ddp->bucket_bytes());
  });
}

TEST(DdpTest, RefusesBucketsOfNoSize) {
  OnRanks(1, [](Communicator& comm) {
    TestNet net;
    EXPECT_THAT(Ddp::Create(net, comm.world(), {.bucket_cap_bytes = 0})
                    .status()
                    .ToString(),
                HasSubstr("bucket_cap_bytes is 0"));
    EXPECT_THAT(
        Ddp::Create(net, comm.world(),
                    {.last_bucket_bytes = 64, .find_unused_parameters = true})
            .status()
            .ToString(),
        HasSubstr("last_bucket_bytes is 64: must be at least 0, and must be 0 "
                  "with find_unused_parameters"));
  });
}

TEST(DdpTest, GradientsAreViewsOfTheirBuckets) {
  OnRanks(2, [](Communicator& comm) {
    TestNet net;
    auto ddp = Make(net, comm);
    for (int step = 0; step < 3; ++step) {
      Backward(net, *ddp, BatchOf(step, comm.rank()));
    }
    const void* before = net.first->weight.grad().const_data_ptr();
    EXPECT_TRUE(net.first->weight.grad().is_view());
    EXPECT_TRUE(net.first->weight.grad().is_alias_of(net.last->bias.grad()));
    ZeroGradients(net);
    Backward(net, *ddp, BatchOf(3, comm.rank()));
    EXPECT_EQ(net.first->weight.grad().const_data_ptr(), before);
  });
}

TEST(DdpTest, UnusedParametersWithTheFlag) {
  const DdpConfig config{.find_unused_parameters = true};
  for (int world_size : {1, 2, 3}) {
    ExpectEqualToAlone(world_size, config, [](int, int) { return false; });
    ExpectEqualToAlone(world_size, config,
                       [](int step, int) { return step % 2 == 1; });
    ExpectEqualToAlone(world_size, config,
                       [](int step, int rank) { return step == rank; });
  }
}

TEST(DdpTest, UnusedParametersKeepNoGradientWithTheFlag) {
  OnRanks(2, [](Communicator& comm) {
    TestNet net;
    auto ddp = Make(net, comm, {.find_unused_parameters = true});
    Backward(net, *ddp, BatchOf(0, comm.rank()), /*use_extra=*/false);
    EXPECT_FALSE(net.extra->weight.grad().defined());
    EXPECT_TRUE(net.first->weight.grad().defined());
  });
}

TEST(DdpTest, UnusedParametersAreNamedWithoutTheFlag) {
  OnRanks(2, [](Communicator& comm) {
    TestNet net;
    auto ddp = Make(net, comm);
    const std::string error = ErrorOf([&] {
      Backward(net, *ddp, BatchOf(0, comm.rank()), /*use_extra=*/false);
    });
    EXPECT_THAT(error, HasSubstr("no gradient to extra.weight, extra.bias on "
                                 "rank "));
    EXPECT_THAT(error, HasSubstr("set find_unused_parameters"));
  });
}

TEST(DdpTest, UnusedParametersAreNamedInLaterStepsToo) {
  OnRanks(2, [](Communicator& comm) {
    TestNet net;
    auto ddp = Make(net, comm, {.bucket_cap_bytes = 4});
    for (int step = 0; step < 3; ++step) {
      Backward(net, *ddp, BatchOf(step, comm.rank()));
    }
    EXPECT_THAT(
        ErrorOf([&] { Backward(net, *ddp, BatchOf(3, comm.rank()), false); }),
        HasSubstr("no gradient to extra.weight, extra.bias"));
  });
}

TEST(DdpTest, StaticGraphFindsUnusedParametersOnce) {
  const DdpConfig config{.static_graph = true};
  for (int world_size : {1, 2, 4}) {
    ExpectEqualToAlone(world_size, config, [](int, int) { return false; });
    ExpectEqualToAlone(world_size, config, [](int, int) { return true; });
  }
}

TEST(DdpTest, StaticGraphWithGradientAccumulation) {
  OnRanks(2, [](Communicator& comm) {
    TestNet net, plain;
    auto ddp = Make(net, comm, {.static_graph = true});
    auto reference = Make(plain, comm);
    for (int step = 0; step < 3; ++step) {
      ZeroGradients(net);
      ZeroGradients(plain);
      for (int k = 0; k < 3; ++k) {
        const TestBatch batch = BatchOf(3 * step + k, comm.rank());
        ddp->SetSync(k == 2);
        reference->SetSync(k == 2);
        Backward(net, *ddp, batch);
        Backward(plain, *reference, batch);
      }
      EXPECT_LT(Distance(Gradients(net), Gradients(plain)), 1e-6);
    }
  });
}

double HookError(DdpConfig::CommHook hook, bool views) {
  double relative = 1;
  OnRanks(2, [&](Communicator& comm) {
    TestNet net, exact;
    auto ddp =
        Make(net, comm, {.gradient_as_bucket_view = views, .comm_hook = hook});
    auto reference = Make(exact, comm);
    for (int step = 0; step < 3; ++step) {
      ZeroGradients(net);
      ZeroGradients(exact);
      Backward(net, *ddp, BatchOf(step, comm.rank()));
      Backward(exact, *reference, BatchOf(step, comm.rank()));
    }
    double largest = 0;
    for (const torch::Tensor& gradient : Gradients(exact)) {
      largest = std::max(largest, gradient.abs().max().item<double>());
    }
    EXPECT_EQ(net.first->weight.grad().scalar_type(), torch::kFloat);
    const double distance = Distance(Gradients(net), Gradients(exact));
    if (comm.rank() == 0) relative = distance / largest;
  });
  return relative;
}

TEST(DdpTest, CompressionHooksRoundToSixteenBits) {
  for (bool views : {true, false}) {
    const double fp16 = HookError(DdpConfig::CommHook::kFp16, views);
    const double bf16 = HookError(DdpConfig::CommHook::kBf16, views);
    EXPECT_GT(fp16, 0) << "something must have been rounded";
    EXPECT_LT(fp16, 1e-3);  // 11 bits of mantissa
    EXPECT_GT(bf16, fp16);
    EXPECT_LT(bf16, 8e-3);  // 8 bits
  }
}

TEST(DdpTest, SparseEmbeddingGradients) {
  OnRanks(2, [](Communicator& comm) {
    torch::nn::Embedding embedding(
        torch::nn::EmbeddingOptions(10, 4).sparse(true));
    auto ddp = Make(*embedding, comm, {.gradient_as_bucket_view = false});
    ddp->BeforeForward();
    torch::Tensor loss =
        embedding(torch::tensor({comm.rank(), 5}, torch::kLong)).sum();
    ddp->BeforeBackward({loss});
    loss.backward();
    ddp->AfterBackward();
    const torch::Tensor dense = embedding->weight.grad().to_dense();
    EXPECT_EQ(dense[0][0].item<float>(), 0.5);
    EXPECT_EQ(dense[1][0].item<float>(), 0.5);
    EXPECT_EQ(dense[5][0].item<float>(), 1);
    EXPECT_EQ(dense[9][0].item<float>(), 0);
  });
}

// A mesh of two pipeline stages and two replicas.
TEST(DdpTest, RunsAlongAnyAxisOfAMesh) {
  OnRanks(4, [](Communicator& comm) {
    const auto layout = MeshLayout::Create({{"dp", 2}, {"pp", 2}}, 4);
    ASSERT_TRUE(layout.ok()) << layout.status();
    const auto mesh = DeviceMesh::Create(comm, *layout);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    for (const char* axis : {"dp", "pp"}) {
      const Group& group = (*mesh)->group(axis);
      TestNet net, alone;
      const int line = group.ranks()[0];
      Fill(net, 1 + comm.rank());  // the line's first rank's values must win
      Fill(alone, 1 + line);
      auto ddp = Make(net, group);
      for (int step = 0; step < 3; ++step) {
        ZeroGradients(net);
        ZeroGradients(alone);
        Backward(net, *ddp, BatchOf(step, comm.rank()));
        for (int rank : group.ranks())
          (LossOf(alone, BatchOf(step, rank)) / 2).backward();
        EXPECT_LT(Distance(Gradients(net), Gradients(alone)), 1e-6) << axis;
        Descend(net);
        Descend(alone);
      }
      EXPECT_TRUE(CheckDivergence(net, group).ok());
      EXPECT_FALSE(CheckDivergence(net, comm.world()).ok())
          << "the lines have different parameters";
    }
  });
}

TEST(DdpTest, RefusesAGroupWithoutAProcessGroup) {
  TestNet net;
  EXPECT_THAT(Ddp::Create(net, Group(), {}).status().ToString(),
              HasSubstr("one rank without a process group"));
}

TEST(DdpTest, RunsOnTheFakeBackend) {
  RankEnv env;
  env.rank = 3;
  env.world_size = 8;
  env.local_world_size = 8;
  env.local_rank = 3;
  CommConfig config;
  config.backend = "fake";
  config.fake.alpha_us = 2000;
  auto comm = Communicator::Create(env, config);
  ASSERT_TRUE(comm.ok()) << comm.status();
  TestNet net, alone;
  auto ddp = Make(net, **comm);
  Backward(net, *ddp, BatchOf(0, 0));
  EXPECT_GE(ddp->TakeExposedComm().Wait(), 0.002);
  LossOf(alone, BatchOf(0, 0)).backward();
  EXPECT_LT(Distance(Gradients(net), Gradients(alone)), 1e-6)
      << "the mean of eight equal gradients";
}

torch::autograd::Engine& Engine() {
  return torch::autograd::Engine::get_default_engine();
}

TEST(BackwardEndTest, LiesBetweenTheGradientsAndWhatIsQueuedWithThem) {
  const torch::Tensor weight = at::ones({4}).requires_grad_();
  std::optional<DeviceEvent> gradient, waiting;
  // As c10d::Reducer does for the last gradient.
  weight.register_hook([&](const torch::Tensor&) {
    gradient.emplace(at::kCPU);
    Engine().queue_callback([&] { waiting.emplace(at::kCPU); });
  });
  const torch::Tensor loss = (weight * 2).sum();
  const auto end = RecordBackwardEnd(loss, at::kCPU);
  loss.backward();
  const std::optional<DeviceEvent>& own = *end;
  ASSERT_TRUE(own.has_value() && gradient.has_value() && waiting.has_value());
  EXPECT_GE(SecondsBetween(*gradient, *own), 0);
  EXPECT_GE(SecondsBetween(*own, *waiting), 0);
}

TEST(BackwardEndTest, IsNotThereWithoutABackward) {
  const torch::Tensor weight = at::ones({4}).requires_grad_();
  EXPECT_FALSE(RecordBackwardEnd(weight.sum(), at::kCPU)->has_value());
  EXPECT_FALSE(RecordBackwardEnd(at::ones({}), at::kCPU)->has_value())
      << "needs no gradient";
}

}  // namespace
}  // namespace rankwise
