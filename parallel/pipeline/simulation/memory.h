// What the ranks of a pipeline hold during a step: what stages keep for
// backward, and the messages between them.
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_MEMORY_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_MEMORY_H_

#include <vector>

#include "absl/types/span.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {

// Bytes of one micro-batch in one stage. Input and output are messages, and
// not part of the others; the gradient of each is as large.
struct StageBytes {
  double input = 0;              // 0 of the first stage
  double output = 0;             // 0 of the last stage
  double kept = 0;               // from F to B or I
  double until_weight_grad = 0;  // from I to W
  double recomputed = 0;         // where forward runs again: during B or I only
};

// From which StageBytesOf computes StageBytes. The first stage has no input,
// the last no output.
struct StageParts {
  double input = 0, output = 0;
  double kept = 0;           // by the forwards of all layers
  bool keeps_input = false;  // the message itself is among it
  // Held in addition, from I to W.
  double until_weight_grad = 0;
};
StageBytes StageBytesOf(const StageParts& parts, bool recompute);

// A micro-batch's forward through a stage, or its backward, which ends with
// gradients of the weights.
struct StagePass {
  int stage = 0;
  bool backward = false;
  bool completes = false;  // the stage's gradients of the step
};

// The passes that `ranks` run in a step, rank after rank, in the schedule's
// order. `recompute` adds a forward before each backward.
std::vector<StagePass> PassesOf(const Schedule& schedule,
                                absl::Span<const int> ranks, bool recompute);

struct StepMemory {
  std::vector<StageBytes> stages;
  // Stages keep their input and not their output, and run forward again.
  bool recompute = false;
};

// The most bytes that `ranks` hold together when a forward ends or a backward
// begins. They run as in the executor: one rank in the order of its list,
// several ranks of one process in that of IssueOrder. On the rank that receives
// it, a message takes memory from the moment at which the receive is posted, in
// a buffer that is kept for later receives, as the executor's are on a CPU; on
// the rank that sends it, until it is known to have arrived (SendReleases).
// A message between stages of one rank counts once. `schedule` must include
// communication.
double PeakBytes(const Schedule& schedule, absl::Span<const int> ranks,
                 const StepMemory& memory);

// PeakBytes of every rank, each in a process of its own.
std::vector<double> PeakBytesOfEach(const Schedule& schedule,
                                    const StepMemory& memory);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_MEMORY_H_
