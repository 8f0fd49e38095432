#include <cstddef>
#include <iterator>
#include <string>

#include "analysis/ledger/ledger.h"

namespace rankwise {
namespace {

struct CauseText {
  const char* name;
  const char* remedy;
};

// In the order of LossCause.
constexpr CauseText kCauseTexts[] = {
    {"smaller batches",
     "Raise --batch_size, in a pipeline at the cost of --microbatches, so that "
     "a pass has enough work in it."},
    {"cores and memory that ranks share",
     "Spread the ranks over more machines or devices, or lower --threads until "
     "the ranks of a machine leave each other cores and memory bandwidth."},
    {"computing slowed by communication",
     "Leave a core to the communication by --threads (on a CPU), or send less "
     "by --comm_hook=bf16 or rarer exchanges (--accumulate)."},
    {"communication within captured steps",
     "Send less by --comm_hook=bf16 or rarer exchanges (--accumulate); a run "
     "with --cuda_graph=false separates waiting from computing."},
    {"exposed communication along tp",
     "Keep the axis within a node, communicate while computing "
     "(--tp_overlap), or use a smaller --tp."},
    {"exposed communication along cp",
     "Communicate while computing (--context=ring), or use a smaller --cp."},
    {"exposed communication along pp",
     "Move --split to where activations are small."},
    {"exposed communication along dp",
     "Send less (--comm_hook=bf16), less often (--accumulate) or sooner (a "
     "smaller --bucket_cap_mb); with data_parallel, take --gather=loss and "
     "--replicate=once, or the trainer ddp."},
    {"pipeline bubble",
     "Raise --microbatches, or take a --schedule with a smaller bubble "
     "(interleaved_1f1b, zero_bubble_h1, zbv)."},
    {"imbalance between ranks",
     "Cut a pipeline by --split=time; elsewhere look at the rank that the "
     "ledger shows busiest, whose hardware is slower or does other work."},
    {"noise of the slowest rank",
     "Keep other programs off the machines, and let ranks wait for each other "
     "less often by --accumulate."},
    {"waiting for data",
     "Raise --data_workers, or move the data to a faster disk."},
    {"everything else",
     "Look at a --trace of the run for what the trainers do not time, such as "
     "checkpoints (--checkpoint_every) and the console (--log_every)."}};
static_assert(std::size(kCauseTexts) ==
              static_cast<size_t>(LossCause::kRest) + 1);

const CauseText& TextOf(LossCause cause) {
  return kCauseTexts[static_cast<size_t>(cause)];
}

}  // namespace

std::string LossName(LossCause cause) { return TextOf(cause).name; }
std::string Remedy(LossCause cause) { return TextOf(cause).remedy; }

}  // namespace rankwise
