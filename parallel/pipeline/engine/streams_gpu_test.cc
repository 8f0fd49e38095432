// Pipelines on GPUs compared to the CPU: stages on separate streams, one GPU as
// two ranks, and device times.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/device/require_gpus.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/engine/test_pipeline.h"
#include "parallel/pipeline/engine/transport.h"

namespace rankwise {
namespace {

constexpr int kMicroBatches = 7;
constexpr int kSteps = 3;  // over which gradients accumulate

c10::Device Gpu(int index) {
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

// All stages of `schedule`, on their ranks' devices.
struct StagesOnGpus {
  StagesOnGpus(TestLayers layers, const Schedule& schedule,
               const std::vector<c10::Device>& devices) {
    for (int i = 0; i < schedule.num_stages(); ++i) {
      stages.push_back(std::make_unique<TestStage>(
          layers, i, schedule.num_stages(), schedule.num_micro_batches));
      stages.back()->MoveTo(
          devices[static_cast<size_t>(schedule.rank_of_stage[i])]);
      pointers.push_back(stages.back().get());
    }
  }

  std::vector<std::unique_ptr<TestStage>> stages;
  std::vector<Stage*> pointers;
};

void ExpectNear(const at::Tensor& expected, const at::Tensor& found) {
  if (!GpusCompute()) return;
  EXPECT_TRUE(at::allclose(expected, found.cpu(), 1e-4, 1e-5))
      << (expected - found.cpu()).abs().max().item<float>();
}

void ExpectGradients(const Reference& reference, const StagesOnGpus& gpus) {
  for (size_t i = 0; i < gpus.stages.size(); ++i) {
    const std::vector<at::Tensor> found = gpus.stages[i]->Gradients();
    for (size_t j = 0; j < found.size(); ++j) {
      SCOPED_TRACE(testing::Message() << "stage " << i << ", parameter " << j);
      ExpectNear(reference.gradients[i][j] * kSteps, found[j]);
    }
  }
}

// Expects actions to take time within the step, a stage's in order.
void ExpectTimes(const Schedule& schedule, const ExecutorStep& step) {
  EXPECT_LT(step.start_seconds, step.end_seconds);
  EXPECT_NEAR(step.end_seconds, SteadySeconds(), 60)
      << "not on the host's clock";
  std::vector<double> last_end(static_cast<size_t>(schedule.num_stages()), 0);
  double last_start = 0;
  for (const Span& span : step.spans) {
    SCOPED_TRACE(ToString(span.action));
    EXPECT_GE(span.start_seconds, last_start);
    last_start = span.start_seconds;
    EXPECT_GE(span.start_seconds, step.start_seconds - 1e-5);
    EXPECT_LE(span.end_seconds, step.end_seconds + 1e-5);
    if (!IsCompute(span.action.kind)) continue;
    EXPECT_GE(span.end_seconds, span.start_seconds);
    // The first stage has no input gradient for I to compute.
    if (span.action.kind != ActionKind::kInputGrad) {
      EXPECT_GT(span.end_seconds, span.start_seconds);
    }
    double& last = last_end[static_cast<size_t>(span.action.stage)];
    EXPECT_GE(span.start_seconds, last - 1e-5);
    last = span.end_seconds;
  }
  const Extent extent = ExtentOf(step.spans);
  EXPECT_LE(extent.busy_seconds(), extent.seconds() + 1e-5);
}

// Compares the local executor, a device per rank, to one process on the CPU.
void ExpectLikeTheCpu(TestLayers layers, const std::string& name,
                      const std::vector<c10::Device>& devices) {
  SCOPED_TRACE(name);
  const Schedule schedule =
      TestSchedule(name, {static_cast<int>(devices.size()), kMicroBatches, 0})
          .at(0);
  const Reference reference =
      ComputeReference(layers, schedule.num_stages(), kMicroBatches);
  const StagesOnGpus gpus(layers, schedule, devices);
  ExecutorConfig config;
  config.devices = devices;
  config.rank_of_stage = schedule.rank_of_stage;
  PipelineExecutor executor(gpus.pointers, config);
  executor.RunForward(kMicroBatches);
  std::vector<ExecutorStep> steps;
  for (int i = 0; i < kSteps; ++i) steps = executor.Run(schedule);
  ExpectNear(reference.loss, steps[0].loss);
  ExpectGradients(reference, gpus);
  for (ExecutorStep& step : steps)
    ExpectTimes(schedule, WaitFor(std::move(step)));
}

TEST(StreamsGpuTest, OneGpuAsTwoRanksComputesWhatTheCpuDoes) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  // By default, convolutions round their inputs to TF32.
  at::globalContext().setAllowTF32CuDNN(false);
  for (const std::string& name : ScheduleNames())
    ExpectLikeTheCpu(TestLayers::kLinear, name, {Gpu(0), Gpu(0)});
  ExpectLikeTheCpu(TestLayers::kConvolution, "1f1b", {Gpu(0), Gpu(0)});
}

TEST(StreamsGpuTest, TwoGpusComputeWhatTheCpuDoes) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  for (const std::string& name : ScheduleNames())
    ExpectLikeTheCpu(TestLayers::kLinear, name, {Gpu(0), Gpu(1)});
}

// Two stages of one rank, each on its own stream.
TEST(StreamsGpuTest, StagesOfOneRankComputeWhatTheCpuDoes) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const Schedule schedule =
      TestSchedule("interleaved_1f1b", {1, kMicroBatches, 2}).at(0);
  const Reference reference =
      ComputeReference(TestLayers::kLinear, 2, kMicroBatches);
  const StagesOnGpus gpus(TestLayers::kLinear, schedule, {Gpu(0)});
  ExecutorConfig config = ConfigFor(schedule);
  config.devices = {Gpu(0)};
  PipelineExecutor executor(Group(), gpus.pointers, config);
  executor.RunForward(kMicroBatches);
  std::vector<ExecutorStep> steps;
  for (int i = 0; i < kSteps; ++i) steps.push_back(StepOf(executor, schedule));
  ExpectNear(reference.loss, steps.back().loss);
  ExpectGradients(reference, gpus);
  // Steps that are read late still have the right times.
  const HostAnchor anchor(Gpu(0));
  for (ExecutorStep& step : steps) step.Read(anchor);
  ExpectTimes(schedule, steps.back());
  EXPECT_LE(steps[0].end_seconds, steps[2].start_seconds + 1e-4);
}

TEST(StreamsGpuTest, CopiesHaveACost) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const LinkCosts link = MeasureCopies({Gpu(0), Gpu(0)}, 4 << 20);
  EXPECT_GT(link.alpha_seconds + link.beta_seconds_per_byte, 0);
  EXPECT_LT(link.alpha_seconds, 1);
}

}  // namespace
}  // namespace rankwise
