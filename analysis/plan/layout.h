// The engine that runs a layout, and the checks of which layouts it supports.
#ifndef RANKWISE_ANALYSIS_PLAN_LAYOUT_H_
#define RANKWISE_ANALYSIS_PLAN_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "analysis/plan/model.h"
#include "analysis/prediction/layout.h"

namespace rankwise::plan {

// What of time and memory depends on the program, not on the layout.
struct Engine {
  std::string name;
  double value_bytes = 2;   // of an activation in a product
  double stream_bytes = 4;  // of one between blocks, as stages send it
  // Autocast's norms, which keep fp32 copies of 16-bit inputs: not on a CPU.
  bool norms_in_fp32 = true;
  bool fused_attention = true;
  double attended = 0.5;  // share of pairs of tokens that attention computes
  bool dropout = false;
  // Backward sums along tp while the weight's gradient is computed.
  bool hides_tp_sums = true;
  bool equal_blocks = false;       // per stage; else stages of equal FLOPs
  bool recomputes_blocks = false;  // one by one; else a stage as a whole
  // Whether it can recompute where dp without ZeRO is the only axis;
  // //trainers:single and ddp have no --recompute.
  bool recomputes_replicas = false;
  bool splits_messages = false;  // between stages among the ranks along tp
  // Of a parameter, without ZeRO.
  double parameter_bytes = 4, gradient_bytes = 4, optimizer_bytes = 8;
  double reduced_bytes = 4;  // of a gradient that is summed along dp
  // Moved by kernels per parameter: in each micro-batch to add up gradients, to
  // cast weights, and in an update. Where dp without ZeRO is the only axis,
  // weights are cast once a step, else in each micro-batch.
  double accumulate_bytes = 12, cast_bytes = 0, update_bytes = 28;
};

// This repository's trainers, in fp32 or under bf16 autocast, on GPUs or on a
// CPU. InvalidArgument for another precision.
absl::StatusOr<Engine> OwnEngine(absl::string_view precision,
                                 bool on_cpu = false);
// Megatron-LM as Narayanan et al. 2021 and Korthikanti et al. 2022 ran it.
Engine Megatron2021();
Engine Megatron2022();

// Whether `engine` can run it: divisibility of heads, tokens and blocks, what
// ZeRO and schedules exclude, recomputation in replicas. InvalidArgument says
// what is not possible.
absl::Status CheckLayout(const Model& model, const Layout& layout,
                         const Engine& engine);

// The target and flags by which this repository runs the layout:
// "//trainers:hybrid -- --nproc=16 --pp=2 ...". Without the model's flags where
// the trainers do not have it.
std::string CommandOf(const Model& model, const Layout& layout,
                      absl::string_view precision);

// A stage's layers: the model is an embedding, the blocks, a norm and a head.
struct Stage {
  bool embedding = false, norm = false, head = false;
  int64_t blocks = 0;
};

// The cut that the engine makes: stages whose costliest has as few FLOPs as
// possible (BalanceLayers), or, with equal blocks, the first ones a block more
// where they do not divide. InvalidArgument for more stages than layers.
absl::StatusOr<std::vector<Stage>> CutModel(const Model& model, int64_t stages,
                                            bool equal_blocks);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_LAYOUT_H_
