// Synchronised batch normalisation on GPUs, over NCCL.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/randn.h"
#include "absl/strings/str_cat.h"
#include "c10/core/DeviceGuard.h"
#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/sync_batch_norm.h"
#include "parallel/ddp/test_sync_batch_norm.h"
#include "parallel/device/graph.h"
#include "parallel/device/require_gpus.h"
#include "parallel/launch/rank_env.h"
#include "torch/csrc/autograd/autograd.h"

namespace rankwise {
namespace {

std::unique_ptr<Communicator> ConnectGpu(int rank, int world_size,
                                         const std::string& store) {
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = world_size;
  CommConfig config;
  config.backend = "nccl";
  config.device = "cuda";
  config.file_store = store;
  auto comm = Communicator::Create(env, config);
  TORCH_CHECK(comm.ok(), comm.status().ToString());
  return *std::move(comm);
}

// Runs `body` once per rank, each on a thread with its own GPU.
void OnGpus(int world_size, const std::function<void(Communicator&)>& body) {
  static std::atomic<int> group{0};
  const std::string store =
      absl::StrCat(testing::TempDir(), "/gpus", group++, ".store");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto comm = ConnectGpu(rank, world_size, store);
        const c10::DeviceGuard guard(comm->device());
        body(*comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void CheckCases(int world_size) {
  OnGpus(world_size, [&](Communicator& comm) {
    for (const NormCase& c : NormCases(world_size)) {
      const auto share = NormalizeShare(c, comm);
      const auto whole = NormalizeWhole(c, comm.rank(), comm.device());
      if (GpusCompute()) ExpectSame(c, share, whole);
    }
  });
}

TEST(SyncBatchNormGpuTest, OneGpuEqualsBatchNorm) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  CheckCases(1);
}

TEST(SyncBatchNormGpuTest, TwoGpusEqualBatchNormOfTheWholeBatch) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  CheckCases(2);
}

TEST(SyncBatchNormGpuTest, FourGpusEqualBatchNormOfTheWholeBatch) {
  if (auto why = WhyTooFewGpus(4); !why.empty()) GTEST_SKIP() << why;
  CheckCases(4);
}

// Neither forward nor backward synchronises the host with the device.
TEST(SyncBatchNormGpuTest, CanBeCaptured) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  OnGpus(1, [](Communicator& comm) {
    const NormCase c = NormCases(1).front();
    // Initialises NCCL, which cannot be captured.
    NormalizeShare(c, comm);
    const at::Tensor x = at::randn({6, 5}, comm.device()).requires_grad_();
    auto graph = MakeDeviceGraph(comm.device());
    ASSERT_TRUE(graph.ok()) << graph.status();
    at::Tensor y, dx;
    const absl::Status captured = (*graph)->Capture([&] {
      y = SyncBatchNormForward(x, {}, {}, 1e-5, comm.world()).output;
      dx = torch::autograd::grad({y.square().sum() * y.sum()}, {x})[0];
      return absl::OkStatus();
    });
    ASSERT_TRUE(captured.ok()) << captured;
    (*graph)->Replay();
    if (!GpusCompute()) return;
    EXPECT_LT(y.mean().abs().item<double>(), 1e-5);
    EXPECT_TRUE(dx.isfinite().all().item<bool>());
  });
}

}  // namespace
}  // namespace rankwise
