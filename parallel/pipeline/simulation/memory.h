// The memory of a pipeline's ranks during a step: tensors that stages store for
// backward, and the messages between them.
#ifndef RANKWISE_PARALLEL_PIPELINE_SIMULATION_MEMORY_H_
#define RANKWISE_PARALLEL_PIPELINE_SIMULATION_MEMORY_H_

#include <vector>

#include "absl/types/span.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {

// Bytes of one micro-batch in one stage. Input and output are messages and not
// part of the other fields; their gradients have the same sizes.
struct StageBytes {
  double input = 0;              // 0 for the first stage
  double output = 0;             // 0 for the last stage
  double kept = 0;               // from F to B or I
  double until_weight_grad = 0;  // from I to W
  double recomputed = 0;         // with recomputation: during B or I only
};

// Input of StageBytesOf. The first stage has no input, the last no output.
struct StageParts {
  double input = 0, output = 0;
  double kept = 0;           // by the forwards of all layers
  bool keeps_input = false;  // whether `kept` includes the input message
  // Additional bytes from I to W.
  double until_weight_grad = 0;
};
StageBytes StageBytesOf(const StageParts& parts, bool recompute);

// A micro-batch's forward through a stage, or its backward, which ends with the
// weight gradients.
struct StagePass {
  int stage = 0;
  bool backward = false;
  bool completes = false;  // whether it completes the stage's gradients
};

// Returns the passes that `ranks` run in a step, rank after rank, in the
// schedule's order. `recompute` adds a forward before each backward.
std::vector<StagePass> PassesOf(const Schedule& schedule,
                                absl::Span<const int> ranks, bool recompute);

struct StepMemory {
  std::vector<StageBytes> stages;
  // Whether stages store only their input, and repeat forward.
  bool recompute = false;
};

// Returns the maximum bytes that `ranks` hold together when a forward ends or a
// backward begins. Ranks run as in the executor: a single rank in its list's
// order, several ranks of one process in that of IssueOrder. On the receiving
// rank a message takes memory from the posting of its receive, in a buffer that
// is reused by later receives, like the executor's on a CPU; on the sending
// rank until it is known to have arrived (SendReleases). A message between
// stages of one rank counts once. `schedule` must include communication.
double PeakBytes(const Schedule& schedule, absl::Span<const int> ranks,
                 const StepMemory& memory);

// Returns PeakBytes of every rank, each in a process of its own.
std::vector<double> PeakBytesPerRank(const Schedule& schedule,
                                     const StepMemory& memory);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SIMULATION_MEMORY_H_
