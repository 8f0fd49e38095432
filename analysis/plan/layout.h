// The engine that runs a layout, and checks that it supports the layout.
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

// Properties of time and memory that depend on the program, not on the layout.
struct Engine {
  std::string name;
  double value_bytes = 2;   // per activation in a product
  double stream_bytes = 4;  // per activation between blocks and stages
  // Whether autocast's norms keep fp32 copies of 16-bit inputs: not on a CPU.
  bool norms_in_fp32 = true;
  bool fused_attention = true;
  double attended = 0.5;  // share of token pairs that attention computes
  bool dropout = false;
  // whether sums along tp overlap the weight gradient in backward
  bool hides_tp_sums = true;
  bool equal_blocks = false;       // per stage; otherwise stages of equal FLOPs
  bool recomputes_blocks = false;  // one by one; otherwise a stage as a whole
  // Whether it can recompute if dp without ZeRO is the only axis;
  // //trainers:single and ddp have no --recompute.
  bool recomputes_replicas = false;
  bool splits_messages = false;  // between stages, among the ranks along tp
  // per parameter, without ZeRO
  double parameter_bytes = 4, gradient_bytes = 4, optimizer_bytes = 8;
  double reduced_bytes = 4;  // per gradient summed along dp
  // Bytes moved by kernels per parameter: in each micro-batch to accumulate
  // gradients, to cast weights, and per update. If dp without ZeRO is the only
  // axis, weights are cast once per step, else in each micro-batch.
  double accumulate_bytes = 12, cast_bytes = 0, update_bytes = 28;
};

// Returns this repository's trainers, in fp32 or under bf16 autocast, on GPUs
// or on a CPU. InvalidArgument for another precision.
absl::StatusOr<Engine> OwnEngine(absl::string_view precision,
                                 bool on_cpu = false);
// Megatron-LM as run by Narayanan et al. 2021 and by Korthikanti et al. 2022.
Engine Megatron2021();
Engine Megatron2022();

// Checks that `engine` can run the layout: divisibility of heads, tokens and
// blocks, restrictions of ZeRO and schedules, recomputation in replicas.
// InvalidArgument names the obstacle.
absl::Status CheckLayout(const Model& model, const Layout& layout,
                         const Engine& engine);

// Returns the target and flags that run the layout in this repository:
// "//trainers:hybrid -- --nproc=16 --pp=2 ...". Omits the model's flags if the
// trainers do not provide the model.
std::string CommandOf(const Model& model, const Layout& layout,
                      absl::string_view precision);

// Layers of a stage: the model is an embedding, the blocks, a norm and a head.
struct Stage {
  bool embedding = false, norm = false, head = false;
  int64_t blocks = 0;
};

// Returns the engine's partition into stages: the most expensive stage has as
// few FLOPs as possible (BalanceLayers) or, with equal blocks, the first stages
// have one block more if necessary. InvalidArgument for more stages than
// layers.
absl::StatusOr<std::vector<Stage>> CutModel(const Model& model, int64_t stages,
                                            bool equal_blocks);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_LAYOUT_H_
