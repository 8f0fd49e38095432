#include "analysis/ledger/waterfall.h"

namespace rankwise {

std::string LossName(LossCause cause) {
  switch (cause) {
    case LossCause::kSmallerBatch:
      return "smaller batches";
    case LossCause::kSharedMachine:
      return "cores and memory that ranks share";
    case LossCause::kCommBesideCompute:
      return "computing slowed by communication";
    case LossCause::kCommInGraph:
      return "communication within captured steps";
    case LossCause::kExposedComm:
      return "exposed communication";
    case LossCause::kBubble:
      return "pipeline bubble";
    case LossCause::kImbalance:
      return "imbalance between ranks";
    case LossCause::kNoise:
      return "noise of the slowest rank";
    case LossCause::kDataWait:
      return "waiting for data";
    case LossCause::kRest:
      break;
  }
  return "everything else";
}

std::string Remedy(LossCause cause) {
  switch (cause) {
    case LossCause::kSmallerBatch:
      return "Raise --batch_size, in a pipeline at the cost of "
             "--microbatches, so that a pass has enough work in it.";
    case LossCause::kSharedMachine:
      return "Spread the ranks over more machines or devices, or lower "
             "--threads until the ranks of a machine leave each other cores "
             "and memory bandwidth.";
    case LossCause::kCommBesideCompute:
      return "Leave a core to the communication by --threads (on a CPU), or "
             "send less "
             "by --comm_hook=bf16 or rarer exchanges (--accumulate).";
    case LossCause::kCommInGraph:
      return "Send less by --comm_hook=bf16 or rarer exchanges (--accumulate); "
             "a run with --cuda_graph=false tells waiting from computing.";
    case LossCause::kExposedComm:
      return "Send less (--comm_hook=bf16), less often (--accumulate) or "
             "sooner (a smaller --bucket_cap_mb); in a pipeline move --split "
             "to where activations are small.";
    case LossCause::kBubble:
      return "Raise --microbatches, or take a --schedule with a smaller bubble "
             "(interleaved_1f1b, zero_bubble_h1, zbv).";
    case LossCause::kImbalance:
      return "Cut a pipeline by --split=time; elsewhere look at the rank that "
             "the ledger shows busiest, whose hardware is slower or does other "
             "work.";
    case LossCause::kNoise:
      return "Keep other programs off the machines, and let ranks wait for "
             "each other less often by --accumulate.";
    case LossCause::kDataWait:
      return "Raise --data_workers, or move the data to a faster disk.";
    case LossCause::kRest:
      break;
  }
  return "Look at a --trace of the run for what the trainers do not time, such "
         "as checkpoints (--checkpoint_every) and the console (--log_every).";
}

}  // namespace rankwise
