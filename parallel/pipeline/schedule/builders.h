// The schedules of the papers. p: ranks; m: micro-batches, any number from 1;
// v: stages per rank. MakeSchedule checks the numbers.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_BUILDERS_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_BUILDERS_H_

#include <vector>

#include "parallel/pipeline/schedule/actions.h"

namespace rankwise {

// Model parallelism without a pipeline: a micro-batch goes all the way forward
// and back before the next one starts.
Schedule NaiveSchedule(int p, int m);

// All forwards, then all backwards. Huang et al. 2019, "GPipe: Efficient
// Training of Giant Neural Networks using Pipeline Parallelism", section 2.3;
// backwards in ascending order.
Schedule GPipeSchedule(int p, int m);

// One forward, one backward: a rank keeps p micro-batches at most. Narayanan et
// al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters
// Using Megatron-LM", section 2.2.1 (PipeDream-Flush).
Schedule OneForwardOneBackward(int p, int m);

// 1F1B where rank r has the v stages r, r + p, r + 2p, ...: the bubble is a
// v-th as long. Same paper, section 2.2.2. Micro-batches go in rounds of p. The
// paper asks for m to be a multiple of p; here the last round is a full one
// from which the micro-batches from m on are left out.
Schedule InterleavedOneForwardOneBackward(int p, int m, int v);

// 1F1B with the backward cut in two: W, which nobody waits for, fills time that
// 1F1B idles, within the memory of 1F1B. Qi et al. 2023, "Zero Bubble Pipeline
// Parallelism", ZB-H1 in the section on handcrafted schedules.
Schedule ZeroBubbleH1(int p, int m);

// Two stages per rank in the shape of a V: rank r has stages r and 2p - 1 - r,
// so that the last stage is on rank 0, whose first backward need not wait for
// the way back. Qi et al. 2024, "Zero Bubble Pipeline Parallelism"
// (arXiv 2401.10241), section 6 (ZB-V). With fewer than 2p - 1 micro-batches it
// is the schedule of 2p - 1 from which the others are left out.
Schedule ZeroBubbleV(int p, int m);

// The schedule of an evaluation: F of all micro-batches through all stages,
// with sends and receives. A stage computes as soon as it can, and a rank with
// several stages takes turns among them, so that micro-batches follow each
// other for any placement. All ranks' lists agree with one order of all actions
// and messages: even where every send waits for its receive, nothing deadlocks.
Schedule MakeForwardSchedule(std::vector<int> rank_of_stage, int num_ranks,
                             int num_micro_batches);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_BUILDERS_H_
