// Captured steps on a real GPU have the same losses as steps without a graph.
#include <c10/core/Device.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/gradient_sync.h"
#include "parallel/device/require_gpus.h"
#include "parallel/launch/rank_env.h"
#include "records/record.h"
#include "records/record_reader.h"
#include "third_party/absl/status_macros.h"
#include "trainers/graphs/captured_step.h"
#include "trainers/loop/config.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/training_run.h"
#include "trainers/loop/worker.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

enum class Engine { kNone, kSimple, kReducer };

struct Outcome {
  std::vector<StepRecord> steps;
  std::string console;
};

TrainConfig Config(const std::string& model) {
  TrainConfig config;
  config.model.name = model;
  config.data.dataset = model == "gpt" ? "tokens" : "synthetic";
  config.data.train_size = 32 * 16 - 5;  // odd last batch of an epoch
  config.data.batch_size = 16;
  config.optimizer.name = "adam";
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.lr_schedule = "cosine";
  config.epochs = 2;
  config.evaluate = false;
  config.output.log_every = 1000;
  return config;
}

absl::StatusOr<std::unique_ptr<DataParallelEngine>> MakeEngine(
    Engine kind, TrainingRun& run, Communicator& comm) {
  if (kind == Engine::kSimple) {
    auto simple = SimpleDataParallel::Create(run.model(), comm.world());
    if (!simple.ok()) return simple.status();
    return std::unique_ptr<DataParallelEngine>(std::move(*simple));
  }
  auto reducer = DistributedDataParallel::Create(run.model(), comm.world(), {});
  if (!reducer.ok()) return reducer.status();
  return std::unique_ptr<DataParallelEngine>(std::move(*reducer));
}

absl::Status Train(const TrainConfig& config, const Worker& worker,
                   Engine kind) {
  auto run = TrainingRun::Create(config, worker);
  if (!run.ok()) return run.status();
  std::unique_ptr<DataParallelEngine> engine;
  const auto make_engine = [&]() -> absl::Status {
    if (kind == Engine::kNone) return absl::OkStatus();
    auto made = MakeEngine(kind, **run, *worker.comm);
    if (made.ok()) engine = std::move(*made);
    return made.status();
  };
  RETURN_IF_ERROR(make_engine());
  RETURN_IF_ERROR((*run)->Start(TrainableParameters((*run)->model())));
  Optimizer& optimizer = (*run)->optimizer();
  const StepFunction step =
      [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    const Batch& batch = input.micro_batches[0];
    (*run)->model().set_dropout_seed(input.dropout_seeds[0]);
    input.clock.Begin(Phase::kForward);
    if (engine != nullptr) engine->BeforeForward();
    const torch::Tensor loss =
        (*run)->objective().LossShare(batch, input.micro_batches);
    const torch::Tensor scaled = optimizer.ScaledLoss(loss);
    if (engine != nullptr) engine->BeforeBackward({scaled});
    input.clock.Begin(Phase::kBackward);
    scaled.backward();
    if (engine != nullptr) engine->AfterBackward();
    input.clock.Begin(Phase::kOptimizer);
    optimizer.Step(input.learning_rate);
    optimizer.ZeroGrad();
    return StepOutcome{.loss = loss.detach()};
  };
  return (*run)->Train(CaptureIfRequested(
      config, worker, **run,
      {.step = step, .warm_up_steps = 11, .recover = make_engine}));
}

// Trains on one GPU; returns the run's records and lines.
Outcome TrainOnGpu(TrainConfig config, bool graph,
                   Engine kind = Engine::kNone) {
  static int runs = 0;
  config.cuda_graph = graph;
  config.output.record_file =
      absl::StrCat(::testing::TempDir(), "/cuda_graph_", runs++, ".jsonl");
  std::remove(config.output.record_file.c_str());
  Worker worker;
  worker.trainer = "single";
  worker.device = c10::Device(c10::kCUDA, 0);
  const SideStream stream(worker.device, graph);
  std::unique_ptr<Communicator> comm;
  if (kind != Engine::kNone) {
    CommConfig comm_config;
    comm_config.backend = "nccl";
    comm_config.device = "cuda:0";
    auto created = Communicator::Create(worker.env, comm_config);
    EXPECT_TRUE(created.ok()) << created.status();
    if (!created.ok()) return {};
    comm = std::move(*created);
    worker.comm = comm.get();
  }
  Outcome outcome;
  testing::internal::CaptureStdout();
  const absl::Status trained = Train(config, worker, kind);
  outcome.console = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(trained.ok()) << trained;
  auto records = ReadRecords(config.output.record_file);
  EXPECT_TRUE(records.ok()) << records.status();
  if (!records.ok()) return outcome;
  for (const Record& record : *records) {
    if (const auto* step = std::get_if<StepRecord>(&record))
      outcome.steps.push_back(*step);
  }
  return outcome;
}

int64_t Replayed(const Outcome& outcome) {
  int64_t replayed = 0;
  for (const StepRecord& step : outcome.steps)
    replayed += step.captured_seconds > 0 ? 1 : 0;
  return replayed;
}

// Kernels may sum in a different order in each run.
void ExpectSameLosses(const Outcome& a, const Outcome& b, double tolerance) {
  ASSERT_EQ(a.steps.size(), 64u);
  ASSERT_EQ(b.steps.size(), 64u);
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss,
                tolerance * (1 + std::abs(a.steps[i].loss)))
        << "step " << i + 1;
  }
}

void ExpectGraphChangesNothing(const TrainConfig& config, double tolerance,
                               Engine kind = Engine::kNone) {
  const Outcome plain = TrainOnGpu(config, /*graph=*/false, kind);
  const Outcome graph = TrainOnGpu(config, /*graph=*/true, kind);
  EXPECT_THAT(graph.console, HasSubstr("a step is one launch of a graph"));
  // All but the first eleven and each epoch's last.
  EXPECT_EQ(Replayed(graph), 64 - 11 - 2) << graph.console;
  EXPECT_EQ(Replayed(plain), 0);
  ExpectSameLosses(plain, graph, tolerance);
}

TEST(CudaGraphGpuTest, SimpleCnn) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  ExpectGraphChangesNothing(Config("simple_cnn"), 1e-3);
}

TEST(CudaGraphGpuTest, ClippingAndSgd) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  TrainConfig config = Config("simple_cnn");
  config.optimizer = {.name = "sgd",
                      .learning_rate = 0.01,
                      .momentum = 0.9,
                      .clip_grad_norm = 0.5,
                      .warmup_steps = 20};
  ExpectGraphChangesNothing(config, 1e-3);
}

TEST(CudaGraphGpuTest, Fp16WithItsScaler) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  TrainConfig config = Config("simple_cnn");
  config.precision = Precision::kFp16;
  ExpectGraphChangesNothing(config, 1e-2);
}

TEST(CudaGraphGpuTest, GptInBf16) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  TrainConfig config = Config("gpt");
  config.precision = Precision::kBf16;
  ExpectGraphChangesNothing(config, 2e-2);
}

TEST(CudaGraphGpuTest, DropoutRunsWithoutAndSaysWhy) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  TrainConfig config = Config("gpt");
  config.model.dropout = 0.1;
  const Outcome plain = TrainOnGpu(config, /*graph=*/false);
  const Outcome graph = TrainOnGpu(config, /*graph=*/true);
  EXPECT_THAT(graph.console, HasSubstr("all steps run without it: with "
                                       "--dropout=0.1"));
  EXPECT_EQ(Replayed(graph), 0);
  ExpectSameLosses(plain, graph, 1e-3);
}

TEST(CudaGraphGpuTest, ReducerOverNccl) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  ExpectGraphChangesNothing(Config("simple_cnn"), 1e-3, Engine::kReducer);
}

TEST(CudaGraphGpuTest, SimpleEngineOverNccl) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  ExpectGraphChangesNothing(Config("simple_cnn"), 1e-3, Engine::kSimple);
}

}  // namespace
}  // namespace rankwise
