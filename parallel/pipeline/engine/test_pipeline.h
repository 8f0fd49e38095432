// For tests: ranks as threads or processes, and small models cut into stages,
// with what one process would compute.
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_TEST_PIPELINE_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_TEST_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "parallel/comm/group.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {

// Runs `body` once per rank, each on a thread with a Gloo group of all ranks,
// Group() for one rank. Returns what each rank threw, "" if nothing.
std::vector<std::string> ErrorsOnRanks(
    int num_ranks, absl::Duration collective_timeout,
    const std::function<void(const Group&, int rank)>& body);

// The same, failing the test where a rank throws.
void OnRanks(int num_ranks,
             const std::function<void(const Group&, int rank)>& body);

// The same with each rank a process of its own, forked from this one, which
// must not have computed anything with torch before. Fails the test where a
// rank throws, fails an expectation or is killed.
void OnProcesses(int num_ranks,
                 const std::function<void(const Group&, int rank)>& body);

enum class TestLayers {
  kLinear,       // [b, 6], Linear and ReLU
  kDropout,      // the same with dropout masks seeded by layer and micro-batch
  kConvolution,  // [b, 3, 5, 5], Conv2d and ReLU, channels_last
  kBf16,         // as kLinear, in 16 bits
};

// Two layers per stage. The last stage's output is the squared error's share of
// the mean over all examples of the step. Every micro-batch has 3 examples but
// the last, which has 2. Parameters and data depend on nothing but the
// arguments.
class TestStage : public Stage {
 public:
  TestStage(TestLayers layers, int stage, int num_stages,
            int num_micro_batches);

  at::Tensor Forward(int micro_batch, const at::Tensor& input) override;
  std::vector<int64_t> InputShape(int micro_batch) const override;
  std::vector<int64_t> OutputShape(int micro_batch) const override;
  at::ScalarType InputType() const override;
  at::ScalarType OutputType() const override { return InputType(); }
  std::vector<at::Tensor> Parameters() const override { return parameters_; }
  // The number of forwards.
  std::vector<at::Tensor> Buffers() const override { return {forwards_}; }

  // Parameters and data are there from now on; before the first Forward.
  void MoveTo(c10::Device device);

  std::vector<at::Tensor> Gradients() const;
  // Forward of that micro-batch throws.
  void ThrowAt(int micro_batch) { throws_at_ = micro_batch; }

  // Whether autograd recorded the last Forward.
  bool saw_gradients() const { return saw_gradients_; }
  // What Forward returned, in order of calls; without graphs.
  const std::vector<at::Tensor>& outputs() const { return outputs_; }

 private:
  at::Tensor ShareOfLoss(int micro_batch, const at::Tensor& prediction) const;

  TestLayers layers_;
  int stage_, num_stages_, num_micro_batches_;
  c10::Device device_ = c10::kCPU;
  std::vector<at::Tensor> parameters_;
  at::Tensor forwards_;
  std::vector<at::Tensor> outputs_;
  int throws_at_ = -1;
  bool saw_gradients_ = false;
};

// The stages of a rank, null for the others'.
struct TestStages {
  TestStages(TestLayers layers, const Schedule& schedule, int rank);
  std::vector<Stage*> pointers() const;

  std::vector<std::unique_ptr<TestStage>> stages;
};

// An executor's configuration for `schedule`.
ExecutorConfig ConfigFor(const Schedule& schedule);

// A step of an executor that runs one rank.
ExecutorStep StepOf(PipelineExecutor& executor, const Schedule& schedule);

// The step with its times; blocks until the device is past it.
ExecutorStep WaitFor(ExecutorStep step);

// What one process computes that adds up gradients over micro-batches.
struct Reference {
  at::Tensor loss;
  std::vector<at::Tensor> shares;                  // by micro-batch
  std::vector<std::vector<at::Tensor>> gradients;  // by stage
};
Reference ComputeReference(TestLayers layers, int num_stages,
                           int num_micro_batches);

// True where both hold the same numbers, bit for bit.
bool Same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

// `name` with communication; nothing where the schedule does not exist in that
// shape.
std::vector<Schedule> TestSchedule(const std::string& name,
                                   ScheduleShape shape);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_TEST_PIPELINE_H_
