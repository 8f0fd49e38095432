// The known schedules. Of all of them: p ranks and m micro-batches, at least 1
// of each; computation only, without a name.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_BUILDERS_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_BUILDERS_H_

#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {

// p ranks without actions, stage s on rank s mod p.
Schedule EmptySchedule(int p, int m, int v);

// Model parallelism without a pipeline: a micro-batch goes all the way forward
// and back before the next one starts.
Schedule Naive(int p, int m, int);

// All forwards, then all backwards. Huang et al. 2019, "GPipe: Efficient
// Training of Giant Neural Networks using Pipeline Parallelism", section 2.3;
// backwards in ascending order.
Schedule GPipe(int p, int m, int);

// One forward, one backward: a rank keeps p micro-batches at most. Narayanan et
// al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters
// Using Megatron-LM", section 2.2.1 (PipeDream-Flush).
Schedule OneForwardOneBackward(int p, int m, int);

// 1F1B where rank r has the v stages r, r + p, r + 2p, ...: the bubble is a
// v-th as long. Narayanan et al. 2021, section 2.2.2. Micro-batches go in
// rounds of p. The paper requires m to be a multiple of p; here the last round
// is a full one from which the micro-batches from m on are left out.
Schedule InterleavedOneForwardOneBackward(int p, int m, int v);

// 1F1B with the backward cut in two: W, which nobody waits for, fills time that
// 1F1B idles, within the memory of 1F1B. Qi et al. 2024, "Zero Bubble Pipeline
// Parallelism" (arXiv 2401.10241), ZB-H1 in section 2 on handcrafted schedules.
Schedule ZeroBubbleH1(int p, int m, int);

// 2p - 1 micro-batches instead of p are forwards enough until the first
// gradient is there, and W enough after the last: where F = I = W and
// m >= 2p - 1, no rank idles between its first and its last action. ZB-H2,
// ibid.
Schedule ZeroBubbleH2(int p, int m, int);

// Two stages per rank in the shape of a V: rank r has stages r and 2p - 1 - r,
// so that the last stage is on rank 0, whose first backward need not wait for
// the way back. No rank keeps more than 2p stages' activations, p micro-batches
// of all its stages. Qi et al. 2024, section 6 (ZB-V). With fewer than 2p - 1
// micro-batches it is the schedule of 2p - 1 from which the others are left
// out.
Schedule ZeroBubbleV(int p, int m, int);

// The stages of ZB-V, but F and B of two micro-batches that pass each other
// overlap: where a GPU computes one of them while the other communicates, the
// communication costs nothing. DeepSeek-AI 2024, "DeepSeek-V3 Technical Report"
// (arXiv 2412.19437), section 3.2.1, DualPipe, cut in half to have each
// parameter once (github.com/deepseek-ai/DualPipe); action for action the order
// of torch 2.11's ScheduleDualPipeV. m must be at least 2p.
Schedule DualPipeV(int p, int m, int);

// One stage per rank, planned for the given costs, which are of 1 or p stages,
// by the heuristic of Qi et al. 2024, section 3 (automatic scheduling). No rank
// keeps more than `max_activations` (at least 1) micro-batches whose F is done
// and whose W is not. Each rank takes what is there, F and I in turn, and fills
// time in which neither is there with W. Which rule is best where two contend
// depends on the costs: all combinations are planned, and the first to end by
// TimedDryRun is taken. zero_bubble_h1 and zero_bubble_h2 are candidates where
// they fit the limit, so that the result is never slower than these. Takes 25
// dry runs and a sort of the events of each.
Schedule ZeroBubbleAuto(int p, int m, int max_activations,
                        const SimulationCosts& costs);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_BUILDERS_H_
