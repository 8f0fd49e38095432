// Data parallelism over a hierarchical all-reduce, compared to the flat one.

#include <memory>
#include <string>
#include <utility>

#include "ATen/Functions.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/hierarchical.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/gradient_sync.h"
#include "parallel/ddp/test_ranks.h"

namespace rankwise {
namespace {

std::unique_ptr<DataParallelEngine> Engine(bool reducer, TestNet& net,
                                           const Group& group) {
  if (!reducer) {
    auto simple = SimpleDataParallel::Create(net, group);
    TORCH_CHECK(simple.ok(), simple.status().ToString());
    return *std::move(simple);
  }
  DdpConfig config;
  config.bucket_cap_bytes = config.first_bucket_bytes = 512;  // several buckets
  auto ddp = DistributedDataParallel::Create(net, group, config);
  TORCH_CHECK(ddp.ok(), ddp.status().ToString());
  return *std::move(ddp);
}

class HierarchicalDdpTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Both, HierarchicalDdpTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Reducer" : "Simple";
                         });

// fp32 and SGD: only the order of additions differs.
TEST_P(HierarchicalDdpTest, TrainsAsTheFlatOne) {
  OnHosts({0, 0, 1, 1}, [](Communicator& comm) {
    TestNet flat, levels;
    const auto group = HierarchicalGroup(comm.world());
    TORCH_CHECK(group.ok(), group.status().ToString());
    const auto flat_engine = Engine(GetParam(), flat, comm.world());
    const auto levels_engine = Engine(GetParam(), levels, *group);
    for (int step = 0; step < 10; ++step) {
      for (const auto& [net, engine] :
           {std::pair(&flat, flat_engine.get()),
            std::pair(&levels, levels_engine.get())}) {
        ZeroGradients(*net);
        const SteadyTime start = SteadyNow();
        Backward(*net, *engine, BatchOf(step, comm.rank()));
        const double exposed = engine->TakeExposedComm().Wait();
        EXPECT_GT(exposed, 0);
        EXPECT_LE(exposed, absl::ToDoubleSeconds(ElapsedSince(start)));
        Descend(*net);
      }
      EXPECT_LT(Distance(Values(flat), Values(levels)), 1e-6) << step;
    }
    EXPECT_GT(Distance(Values(levels), Values(TestNet())), 1e-3);
  });
}

}  // namespace
}  // namespace rankwise
