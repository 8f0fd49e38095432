#include "parallel/pipeline/engine/test_pipeline.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Functions.h"
#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "torch/csrc/autograd/autograd.h"

namespace rankwise {
namespace {

constexpr int kExamples = 3;  // per micro-batch, except the last

at::Tensor Random(const std::vector<int64_t>& shape, int64_t seed) {
  const at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randn(shape, generator) * 0.4;
}

std::vector<int64_t> ShapeOf(TestLayers layers, int64_t examples) {
  if (layers == TestLayers::kConvolution) return {examples, 3, 5, 5};
  return {examples, 6};
}

at::Tensor InFormat(const at::Tensor& tensor) {
  if (tensor.dim() != 4) return tensor;
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

using RankBody = std::function<void(const Group&, int rank)>;

// Runs on the rank's own thread, or in its own process.
void RunRank(int rank, int num_ranks, const std::string& store,
             absl::Duration collective_timeout, const RankBody& body) {
  at::set_num_threads(1);
  std::unique_ptr<Communicator> communicator;
  if (num_ranks > 1)
    communicator = ConnectRank(rank, num_ranks, store, collective_timeout);
  body(communicator == nullptr ? Group() : communicator->world(), rank);
}

}  // namespace

std::vector<std::string> ErrorsOnRanks(int num_ranks,
                                       absl::Duration collective_timeout,
                                       const RankBody& body) {
  static std::atomic<int> groups{0};
  const std::string store =
      absl::StrCat(testing::TempDir(), "/pipeline", groups++, ".store");
  std::vector<std::string> errors(num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      errors[rank] = ErrorOf(
          [&] { RunRank(rank, num_ranks, store, collective_timeout, body); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void OnRanks(int num_ranks, const RankBody& body) {
  const std::vector<std::string> errors =
      ErrorsOnRanks(num_ranks, absl::Seconds(60), body);
  for (int rank = 0; rank < num_ranks; ++rank) {
    EXPECT_EQ(errors[rank], "") << "on rank " << rank;
  }
}

void OnProcesses(int num_ranks, const RankBody& body) {
  const std::string store =
      absl::StrCat(testing::TempDir(), "/processes", num_ranks, ".store");
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0) << "fork failed";
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      EXPECT_EQ(ErrorOf([&] {
                  RunRank(rank, num_ranks, store, absl::Seconds(60), body);
                }),
                "")
          << "on rank " << rank;
      std::fflush(nullptr);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    int status = 0;
    waitpid(children[static_cast<size_t>(rank)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

TestStage::TestStage(TestLayers layers, int stage, int num_stages,
                     int num_micro_batches)
    : layers_(layers),
      stage_(stage),
      num_stages_(num_stages),
      num_micro_batches_(num_micro_batches) {
  std::vector<int64_t> weight = {6, 6}, bias = {6};
  if (layers == TestLayers::kConvolution) {
    weight = {3, 3, 3, 3};
    bias = {3};
  }
  for (const std::vector<int64_t>& shape : {weight, bias, weight, bias}) {
    const auto seed = static_cast<int64_t>(10 * stage + parameters_.size());
    parameters_.push_back(
        InFormat(Random(shape, seed)).to(InputType()).requires_grad_());
  }
  forwards_ = at::zeros({}, at::kLong);
}

at::ScalarType TestStage::InputType() const {
  return layers_ == TestLayers::kBf16 ? at::kBFloat16 : at::kFloat;
}

void TestStage::MoveTo(c10::Device device) {
  device_ = device;
  for (at::Tensor& parameter : parameters_)
    parameter = parameter.detach().to(device).requires_grad_();
}

at::Tensor TestStage::Forward(int micro_batch, const at::Tensor& input) {
  TORCH_CHECK(micro_batch != throws_at_, "thrown by the test");
  at::Tensor x = input;
  if (!x.defined()) {
    x = InFormat(Random(InputShape(micro_batch), 1000 + micro_batch)
                     .to(device_, InputType()));
  }
  for (size_t i = 0; i < parameters_.size(); i += 2) {
    x = layers_ == TestLayers::kConvolution
            ? at::conv2d(x, parameters_[i], parameters_[i + 1], 1, 1)
            : at::linear(x, parameters_[i], parameters_[i + 1]);
    x = at::relu(x) + x * 0.1;
  }
  if (layers_ == TestLayers::kDropout) {
    const at::Tensor noise =
        Random(x.sizes().vec(), 100 * stage_ + micro_batch);
    x = x * (noise.to(device_) > 0);
  }
  if (stage_ + 1 == num_stages_) x = ShareOfLoss(micro_batch, x);
  outputs_.push_back(x.detach());
  forwards_ += 1;
  saw_gradients_ = x.requires_grad();
  return x;
}

at::Tensor TestStage::ShareOfLoss(int micro_batch,
                                  const at::Tensor& prediction) const {
  const at::Tensor target =
      Random(prediction.sizes().vec(), 2000 + micro_batch).to(device_);
  const double examples = kExamples * num_micro_batches_ - 1;
  return at::square(prediction - target).sum() / examples;
}

std::vector<int64_t> TestStage::InputShape(int micro_batch) const {
  const bool is_last = micro_batch + 1 == num_micro_batches_;
  return ShapeOf(layers_, is_last ? kExamples - 1 : kExamples);
}

std::vector<int64_t> TestStage::OutputShape(int micro_batch) const {
  return InputShape(micro_batch);
}

std::vector<at::Tensor> TestStage::Gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

TestStages::TestStages(TestLayers layers, const Schedule& schedule, int rank)
    : stages(schedule.num_stages()) {
  for (int stage : schedule.StagesOf(rank)) {
    stages[stage] = std::make_unique<TestStage>(
        layers, stage, schedule.num_stages(), schedule.num_micro_batches);
  }
}

std::vector<Stage*> TestStages::pointers() const {
  std::vector<Stage*> pointers;
  for (const auto& stage : stages) pointers.push_back(stage.get());
  return pointers;
}

ExecutorConfig ConfigFor(const Schedule& schedule) {
  ExecutorConfig config;
  config.rank_of_stage = schedule.rank_of_stage;
  return config;
}

ExecutorStep StepOf(PipelineExecutor& executor, const Schedule& schedule) {
  return std::move(executor.Run(schedule).front());
}

ExecutorStep WaitFor(ExecutorStep step) {
  step.Read(HostAnchor(step.events->start.device()));
  return step;
}

Reference ComputeReference(TestLayers layers, int num_stages,
                           int num_micro_batches) {
  std::vector<TestStage> stages;
  for (int stage = 0; stage < num_stages; ++stage) {
    stages.emplace_back(layers, stage, num_stages, num_micro_batches);
  }
  Reference reference;
  reference.loss = at::zeros({});
  for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    at::Tensor x;
    for (TestStage& stage : stages) x = stage.Forward(micro_batch, x);
    torch::autograd::backward({x}, {at::ones_like(x)});
    reference.shares.push_back(x.detach());
    reference.loss += x.detach();
  }
  for (const TestStage& stage : stages) {
    reference.gradients.push_back(stage.Gradients());
  }
  return reference;
}

bool Same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].defined() || !b[i].defined() || !at::equal(a[i], b[i])) {
      return false;
    }
  }
  return true;
}

std::vector<Schedule> TestSchedule(const std::string& name,
                                   ScheduleShape shape) {
  const absl::StatusOr<Schedule> compute = MakeSchedule(name, shape);
  if (!compute.ok()) return {};
  absl::StatusOr<Schedule> schedule = AddCommunication(*compute);
  TORCH_CHECK(schedule.ok(), schedule.status().ToString());
  return {*std::move(schedule)};
}

}  // namespace rankwise
