// The built-in schedules, with p ranks and m micro-batches, at least 1 of each.
// All contain computation only and have no name.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_BUILDERS_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_BUILDERS_H_

#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {

// p ranks without actions; stage s is on rank s mod p.
Schedule EmptySchedule(int p, int m, int v);

// Model parallelism without a pipeline: a micro-batch completes its forward and
// backward before the next one starts.
Schedule Naive(int p, int m, int);

// All forwards, then all backwards. Huang et al. 2019, "GPipe: Efficient
// Training of Giant Neural Networks using Pipeline Parallelism", section 2.3;
// backwards in ascending order.
Schedule GPipe(int p, int m, int);

// One forward, one backward: a rank stores at most p micro-batches. Narayanan
// et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters
// Using Megatron-LM", section 2.2.1 (PipeDream-Flush).
Schedule OneForwardOneBackward(int p, int m, int);

// 1F1B in which rank r has the v stages r, r + p, r + 2p, ...; divides the
// bubble by v. Narayanan et al. 2021, section 2.2.2. Micro-batches run in
// rounds of p. The paper requires m to be a multiple of p; here the last round
// is a full one without the micro-batches from m on.
Schedule InterleavedOneForwardOneBackward(int p, int m, int v);

// 1F1B with a split backward: W, which no other rank waits for, fills 1F1B's
// idle time within 1F1B's memory. Qi et al. 2024, "Zero Bubble Pipeline
// Parallelism" (arXiv 2401.10241), ZB-H1 in section 2 on handcrafted schedules.
Schedule ZeroBubbleH1(int p, int m, int);

// Stores 2p - 1 micro-batches instead of p: enough forwards to last until the
// first gradient arrives, and enough W after the last one. If F = I = W and m
// >= 2p - 1, no rank idles between its first and last action. ZB-H2, ibid.
Schedule ZeroBubbleH2(int p, int m, int);

// Two stages per rank in the shape of a V: rank r has stages r and 2p - 1 - r,
// so the last stage is on rank 0, whose first backward need not wait for a
// return trip. No rank stores more than 2p stages' activations, i.e. p
// micro-batches of all its stages. Qi et al. 2024, section 6 (ZB-V). For fewer
// than 2p - 1 micro-batches it is the schedule of 2p - 1 without the others.
Schedule ZeroBubbleV(int p, int m, int);

// ZB-V's stages, but F and B of two micro-batches that cross on a rank overlap:
// if a GPU computes one while the other communicates, communication is free.
// DeepSeek-AI 2024, "DeepSeek-V3 Technical Report" (arXiv 2412.19437), section
// 3.2.1, DualPipe, cut in half to store each parameter once
// (github.com/deepseek-ai/DualPipe); the action order equals that of torch
// 2.11's ScheduleDualPipeV. m must be at least 2p.
Schedule DualPipeV(int p, int m, int);

// One stage per rank, planned for the costs of 1 or p stages by the heuristic
// of Qi et al. 2024, section 3 (automatic scheduling). No rank stores more than
// `max_activations` (at least 1) micro-batches between F and W. Each rank runs
// available actions, alternating F and I, and fills time without either with W.
// The best rule for ties depends on the costs: all combinations are planned,
// and the one that ends first in TimedDryRun is returned. zero_bubble_h1 and
// zero_bubble_h2 are candidates if they fit the limit, so the result is never
// slower than these. Takes up to 26 dry runs, each with a sort of its
// events.
Schedule ZeroBubbleAuto(int p, int m, int max_activations,
                        const SimulationCosts& costs);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_BUILDERS_H_
