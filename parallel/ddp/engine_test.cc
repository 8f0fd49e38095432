// The contract of every data-parallel engine, tested on both over real Gloo.

#include <memory>
#include <string>
#include <tuple>

#include "ATen/Functions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/gradient_sync.h"
#include "parallel/ddp/test_ranks.h"

namespace rankwise {
namespace {

enum class Kind { kReducer, kReducerCopies, kSimple };

absl::StatusOr<std::unique_ptr<DataParallelEngine>> Make(
    Kind kind, torch::nn::Module& module, Communicator& comm,
    bool skip_communication = false) {
  if (kind == Kind::kSimple) {
    return SimpleDataParallel::Create(module, comm.world(), skip_communication);
  }
  DdpConfig config;
  config.skip_communication = skip_communication;
  config.gradient_as_bucket_view = kind == Kind::kReducer;
  return DistributedDataParallel::Create(module, comm.world(), config);
}

class EngineTest : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  static Kind kind() { return std::get<0>(GetParam()); }
  static int world_size() { return std::get<1>(GetParam()); }

  static std::unique_ptr<DataParallelEngine> Engine(TestNet& net,
                                                    Communicator& comm) {
    auto engine = Make(kind(), net, comm);
    TORCH_CHECK(engine.ok(), engine.status().ToString());
    return *std::move(engine);
  }
};

std::string NameOf(const testing::TestParamInfo<std::tuple<Kind, int>>& info) {
  const char* kinds[] = {"Reducer", "ReducerWithCopies", "Simple"};
  return std::string(kinds[static_cast<int>(std::get<0>(info.param))]) +
         "WorldSize" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, EngineTest,
                         testing::Combine(testing::Values(Kind::kReducer,
                                                          Kind::kReducerCopies,
                                                          Kind::kSimple),
                                          testing::Range(1, 5)),
                         NameOf);

TEST_P(EngineTest, EqualsOneProcessWithTheConcatenatedBatch) {
  TestNet alone;
  for (int step = 0; step < 5; ++step) {
    ZeroGradients(alone);
    LossOf(alone, GlobalBatch(step, world_size())).backward();
    Descend(alone);
  }
  OnRanks(world_size(), [&](Communicator& comm) {
    TestNet net;
    Fill(net, 1 + comm.rank());  // rank 0's values must win
    auto engine = Engine(net, comm);
    for (int step = 0; step < 5; ++step) {
      ZeroGradients(net);
      Backward(net, *engine, BatchOf(step, comm.rank()));
      Descend(net);
    }
    EXPECT_LT(Distance(Values(net), Values(alone)), 1e-6);
    EXPECT_LT(Distance(Gradients(net), Gradients(alone)), 1e-6);
  });
}

TEST_P(EngineTest, AccumulatesOverMicroBatchesWithoutSync) {
  constexpr int kMicroBatches = 3, kSteps = 3;
  TestNet alone;
  for (int step = 0; step < kSteps; ++step) {
    ZeroGradients(alone);
    for (int k = 0; k < kMicroBatches; ++k) {
      const int index = step * kMicroBatches + k;
      (LossOf(alone, GlobalBatch(index, world_size())) / kMicroBatches)
          .backward();
    }
    Descend(alone);
  }
  OnRanks(world_size(), [&](Communicator& comm) {
    TestNet net;
    auto engine = Engine(net, comm);
    for (int step = 0; step < kSteps; ++step) {
      ZeroGradients(net);
      for (int k = 0; k < kMicroBatches; ++k) {
        engine->SetSync(k + 1 == kMicroBatches);
        Backward(net, *engine, BatchOf(step * kMicroBatches + k, comm.rank()),
                 true, 1.0 / kMicroBatches);
        if (k + 1 < kMicroBatches) {
          EXPECT_EQ(engine->TakeExposedComm().Wait(), 0);
        }
      }
      Descend(net);
    }
    EXPECT_LT(Distance(Values(net), Values(alone)), 1e-6);
  });
}

TEST_P(EngineTest, WithoutSyncGradientsStayLocal) {
  OnRanks(world_size(), [&](Communicator& comm) {
    TestNet net, alone;
    auto engine = Engine(net, comm);
    engine->SetSync(false);
    Backward(net, *engine, BatchOf(0, comm.rank()));
    LossOf(alone, BatchOf(0, comm.rank())).backward();
    EXPECT_EQ(Distance(Gradients(net), Gradients(alone)), 0);
  });
}

TEST_P(EngineTest, GivesEveryRankTheBuffersOfRankZero) {
  OnRanks(world_size(), [&](Communicator& comm) {
    TestNet net;
    net.scale.fill_(1 + comm.rank());
    auto engine = Engine(net, comm);
    EXPECT_EQ(net.scale.item<float>(), 1) << "at the start";
    net.scale.fill_(5 + comm.rank());
    net.steps.fill_(70 + comm.rank());
    Backward(net, *engine, BatchOf(0, comm.rank()));
    EXPECT_EQ(net.scale.item<float>(), 5) << "before forward";
    EXPECT_EQ(net.steps.item<int64_t>(), 70);
  });
}

TEST_P(EngineTest, SendsBuffersOnlyAfterASynchronisedStep) {
  OnRanks(world_size(), [&](Communicator& comm) {
    TestNet net;
    auto engine = Engine(net, comm);
    engine->SetSync(false);
    Backward(net, *engine, BatchOf(0, comm.rank()));
    net.scale.fill_(5 + comm.rank());
    engine->SetSync(true);
    Backward(net, *engine, BatchOf(1, comm.rank()));
    EXPECT_EQ(net.scale.item<float>(), 5 + comm.rank());
    Backward(net, *engine, BatchOf(2, comm.rank()));
    EXPECT_EQ(net.scale.item<float>(), 5);
  });
}

TEST_P(EngineTest, MeasuresExposedCommunication) {
  OnRanks(world_size(), [&](Communicator& comm) {
    TestNet net;
    auto engine = Engine(net, comm);
    for (int step = 0; step < 3; ++step) {
      Backward(net, *engine, BatchOf(step, comm.rank()));
      const double exposed = engine->TakeExposedComm().Wait();
      EXPECT_GT(exposed, 0);
      EXPECT_LT(exposed, 60);
      EXPECT_EQ(engine->TakeExposedComm().Wait(), 0) << "taken";
    }
  });
}

TEST_P(EngineTest, SkippedCommunicationLeavesEveryRankItsOwn) {
  OnRanks(world_size(), [&](Communicator& comm) {
    TestNet net, alone;
    auto engine = Make(kind(), net, comm, /*skip_communication=*/true);
    ASSERT_TRUE(engine.ok()) << engine.status();
    for (int step = 0; step < 3; ++step) {
      for (TestNet* each : {&net, &alone}) {
        each->scale.fill_(1 + comm.rank());
        ZeroGradients(*each);
      }
      // Before the second step the reducer rebuilds its buckets collectively.
      if (step == 2) comm.StartTraffic();
      Backward(net, **engine, BatchOf(step, comm.rank()));
      LossOf(alone, BatchOf(step, comm.rank())).backward();
      EXPECT_EQ(net.scale.item<float>(), 1 + comm.rank());
      EXPECT_EQ((*engine)->TakeExposedComm().Wait(), 0);
      EXPECT_EQ(Distance(Gradients(net), Gradients(alone)), 0);
      Descend(net);
      Descend(alone);
    }
    EXPECT_TRUE(comm.TakeTraffic().empty());
  });
}

TEST_P(EngineTest, LeavesFrozenParametersAlone) {
  OnRanks(world_size(), [&](Communicator& comm) {
    TestNet net;
    net.second->weight.set_requires_grad(false);
    auto engine = Engine(net, comm);
    Backward(net, *engine, BatchOf(0, comm.rank()));
    EXPECT_FALSE(net.second->weight.grad().defined());
    EXPECT_TRUE(net.second->bias.grad().defined());
  });
}

TEST_P(EngineTest, RefusesDifferentModelsByNameOnAllRanks) {
  if (world_size() == 1) return;
  OnRanks(world_size(), [&](Communicator& comm) {
    torch::nn::Linear layer(4, comm.rank() == 1 ? 5 : 3);
    auto engine = Make(kind(), *layer, comm);
    EXPECT_THAT(engine.status().ToString(),
                testing::HasSubstr("'weight' is Float [3, 4] on rank 0 and "
                                   "Float [5, 4] on rank 1"));
  });
}

TEST_P(EngineTest, RefusesAModelWithNothingToTrain) {
  OnRanks(world_size(), [&](Communicator& comm) {
    torch::nn::Linear layer(4, 3);
    for (auto& parameter : layer->parameters()) {
      parameter.set_requires_grad(false);
    }
    EXPECT_THAT(Make(kind(), *layer, comm).status().ToString(),
                testing::HasSubstr("no parameter that requires a gradient"));
  });
}

// Division by two is exact, so the order of division and sum does not matter.
TEST(EnginesTest, AgreeToTheLastBitAtWorldSizeTwo) {
  OnRanks(2, [](Communicator& comm) {
    TestNet a, b, c;
    auto reducer = *Make(Kind::kReducer, a, comm);
    auto copies = *Make(Kind::kReducerCopies, b, comm);
    auto simple = *Make(Kind::kSimple, c, comm);
    for (int step = 0; step < 4; ++step) {
      const TestBatch batch = BatchOf(step, comm.rank());
      for (auto [net, engine] :
           {std::pair(&a, reducer.get()), std::pair(&b, copies.get()),
            std::pair(&c, simple.get())}) {
        ZeroGradients(*net);
        Backward(*net, *engine, batch);
        Descend(*net);
      }
      EXPECT_EQ(Distance(Gradients(a), Gradients(c)), 0);
      EXPECT_EQ(Distance(Gradients(b), Gradients(c)), 0);
      EXPECT_EQ(Distance(Values(a), Values(c)), 0);
    }
  });
}

}  // namespace
}  // namespace rankwise
