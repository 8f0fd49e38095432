// For tests: ranks as threads or processes, and small models cut into stages,
// with the results of one process.
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
// or Group() for one rank. Returns each rank's error, "" without one.
std::vector<std::string> ErrorsOnRanks(
    int num_ranks, absl::Duration collective_timeout,
    const std::function<void(const Group&, int rank)>& body);

// As ErrorsOnRanks, but fails the test if a rank throws.
void OnRanks(int num_ranks,
             const std::function<void(const Group&, int rank)>& body);

// As OnRanks, but each rank is a process forked from this one, which must not
// have used torch for computation before. Fails the test if a rank throws,
// fails an expectation or is killed.
void OnProcesses(int num_ranks,
                 const std::function<void(const Group&, int rank)>& body);

enum class TestLayers {
  kLinear,   // [b, 6], Linear and ReLU
  kDropout,  // as kLinear, with dropout masks seeded by layer and micro-batch
  kConvolution,  // [b, 3, 5, 5], Conv2d and ReLU, channels_last
  kBf16,         // as kLinear, in 16 bits
};

// Two layers per stage. The last stage returns the squared error's share of the
// mean over all examples of the step. Every micro-batch has 3 examples, the
// last one 2. Parameters and data depend only on the arguments.
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
  // Returns the number of forwards.
  std::vector<at::Tensor> Buffers() const override { return {forwards_}; }

  // Moves parameters and data; call before the first Forward.
  void MoveTo(c10::Device device);

  std::vector<at::Tensor> Gradients() const;
  // Makes the forward of that micro-batch throw.
  void ThrowAt(int micro_batch) { throws_at_ = micro_batch; }

  // Returns whether autograd recorded the last Forward.
  bool saw_gradients() const { return saw_gradients_; }
  // Returns Forward's results in call order, without graphs.
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

// The stages of a rank; nullptr for those of other ranks.
struct TestStages {
  TestStages(TestLayers layers, const Schedule& schedule, int rank);
  std::vector<Stage*> pointers() const;

  std::vector<std::unique_ptr<TestStage>> stages;
};

// Returns an executor configuration for `schedule`.
ExecutorConfig ConfigFor(const Schedule& schedule);

// Runs a step of an executor that runs one rank.
ExecutorStep StepOf(PipelineExecutor& executor, const Schedule& schedule);

// Returns the step with its times; blocks until the device has passed it.
ExecutorStep WaitFor(ExecutorStep step);

// The results of one process that accumulates gradients over micro-batches.
struct Reference {
  at::Tensor loss;
  std::vector<at::Tensor> shares;                  // by micro-batch
  std::vector<std::vector<at::Tensor>> gradients;  // by stage
};
Reference ComputeReference(TestLayers layers, int num_stages,
                           int num_micro_batches);

// Returns whether both hold bitwise equal tensors.
bool Same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

// Returns `name` with communication; empty if the schedule does not support the
// shape.
std::vector<Schedule> TestSchedule(const std::string& name,
                                   ScheduleShape shape);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_TEST_PIPELINE_H_
