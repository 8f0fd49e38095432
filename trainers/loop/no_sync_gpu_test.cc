// Between log steps, no work that the training loop submits to the GPU makes
// the host wait for it, neither in the loader nor in the step. (The clock and
// the log wait for events, which this test cannot detect: step_log_test.)
#include <ATen/ops/ones.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/gradient_sync.h"
#include "parallel/device/refuse_waits_for_test.h"
#include "parallel/device/require_gpus.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/config.h"
#include "trainers/loop/training_run.h"
#include "trainers/loop/worker.h"

namespace rankwise {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);
// Earlier steps allocate memory and choose kernels. The loss is read after
// kLogEvery, 2 * kLogEvery, ...
constexpr int64_t kLogEvery = 20;
constexpr int64_t kFirst = kLogEvery + 1, kLast = 2 * kLogEvery - 1;

TrainConfig Config() {
  TrainConfig config;
  config.model.name = "simple_cnn";
  config.data.dataset = "synthetic";
  config.data.batch_size = 16;
  config.data.train_size = 2 * kLogEvery * config.data.batch_size;
  config.optimizer.name = "adam";
  config.epochs = 1;
  config.evaluate = false;
  config.output.log_every = kLogEvery;
  config.output.show_progress = false;
  return config;
}

using MakeEngine =
    std::function<absl::StatusOr<std::unique_ptr<DataParallelEngine>>(
        torch::nn::Module&, Communicator&)>;

template <typename Engine>
MakeEngine EngineOf() {
  return [](torch::nn::Module& model, Communicator& comm)
             -> absl::StatusOr<std::unique_ptr<DataParallelEngine>> {
    auto engine = [&] {
      if constexpr (std::is_same_v<Engine, SimpleDataParallel>)
        return SimpleDataParallel::Create(model, comm.world());
      else
        return DistributedDataParallel::Create(model, comm.world(), {});
    }();
    if (!engine.ok()) return engine.status();
    return std::unique_ptr<DataParallelEngine>(*std::move(engine));
  };
}

// Trains with waits refused in steps kFirst to kLast, and between them.
absl::Status Train(const TrainConfig& config, const MakeEngine& make_engine) {
  Worker worker;
  worker.trainer = "no_sync_gpu_test";
  worker.device = kGpu;
  std::unique_ptr<Communicator> comm;
  if (make_engine != nullptr) {
    CommConfig comm_config;
    comm_config.backend = "nccl";
    comm_config.device = "cuda:0";
    auto created = Communicator::Create(worker.env, comm_config);
    if (!created.ok()) return created.status();
    comm = *std::move(created);
    worker.comm = comm.get();
  }
  auto run = TrainingRun::Create(config, worker);
  if (!run.ok()) return run.status();
  std::unique_ptr<DataParallelEngine> engine;
  if (make_engine != nullptr) {
    auto made = make_engine((*run)->model(), *comm);
    if (!made.ok()) return made.status();
    engine = *std::move(made);
  }
  RETURN_IF_ERROR((*run)->Start(TrainableParameters((*run)->model())));
  std::optional<RefuseWaits> refused;
  return (*run)->Train(
      [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
        if (input.step == kFirst) refused.emplace();
        input.clock.Begin(Phase::kForward);
        if (engine != nullptr) engine->BeforeForward();
        const torch::Tensor loss = (*run)->objective().LossShare(
            input.micro_batches[0], input.micro_batches);
        if (engine != nullptr) engine->BeforeBackward({loss});
        input.clock.Begin(Phase::kBackward);
        loss.backward();
        if (engine != nullptr) engine->AfterBackward();
        input.clock.Begin(Phase::kOptimizer);
        (*run)->optimizer().Step(input.learning_rate);
        (*run)->optimizer().ZeroGrad();
        if (input.step == kLast) refused.reset();
        StepOutcome outcome{.loss = loss.detach()};
        if (engine != nullptr)
          outcome.exposed_comm_seconds = engine->TakeExposedComm();
        return outcome;
      });
}

TEST(NoSyncGpuTest, WaitingIsSeenWhereItIs) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const at::Tensor one =
      at::ones({}, at::TensorOptions(at::kFloat).device(kGpu));
  {
    const RefuseWaits refused;
    EXPECT_THROW((void)one.item<float>(), c10::Error);
  }
  EXPECT_EQ(one.item<float>(), 1);
}

TEST(NoSyncGpuTest, OneDevice) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const absl::Status trained = Train(Config(), nullptr);
  EXPECT_TRUE(trained.ok()) << trained;
}

TEST(NoSyncGpuTest, ClippingSgdAndNoLoaderThread) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  TrainConfig config = Config();
  config.optimizer.name = "sgd";
  config.optimizer.momentum = 0.9;
  config.optimizer.learning_rate = 0.01;
  config.optimizer.clip_grad_norm = 1;
  config.data.workers = 0;
  const absl::Status trained = Train(config, nullptr);
  EXPECT_TRUE(trained.ok()) << trained;
}

TEST(NoSyncGpuTest, SimpleDataParallel) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const absl::Status trained = Train(Config(), EngineOf<SimpleDataParallel>());
  EXPECT_TRUE(trained.ok()) << trained;
}

TEST(NoSyncGpuTest, DistributedDataParallel) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const absl::Status trained =
      Train(Config(), EngineOf<DistributedDataParallel>());
  EXPECT_TRUE(trained.ok()) << trained;
}

}  // namespace
}  // namespace rankwise
