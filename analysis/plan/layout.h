// One way to divide training among ranks, and what the program that runs it
// does and keeps.
#ifndef RANKWISE_ANALYSIS_PLAN_LAYOUT_H_
#define RANKWISE_ANALYSIS_PLAN_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "analysis/plan/model.h"

namespace rankwise::plan {

// What backward computes again instead of keeping it.
enum class Recompute {
  kNone,
  kAttention,  // the attention's weights (Korthikanti et al. 2022, section 5)
  kFull,       // everything but inputs
};

// Ranks are on the mesh (pp, dp, cp, tp), the last changes fastest.
struct Layout {
  int64_t pp = 1, dp = 1, cp = 1, tp = 1;
  int zero = 0;  // ZeRO's stage; 0: replicas
  std::string schedule = "1f1b";
  int64_t chunks = 1;       // stages of each rank along pp
  int64_t micro_batch = 1;  // examples
  int64_t micro_batches = 1;
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;

  int64_t ranks() const { return pp * dp * cp * tp; }
  int64_t stages() const { return pp * chunks; }
  int64_t global_batch() const { return micro_batch * micro_batches * dp; }
  // Along tp and cp and the micro-batches, but not the model in stages.
  bool is_data_parallel() const { return pp * cp * tp == 1; }
};

// "pp 8 x dp 2 x tp 8"; "1 rank".
std::string MeshName(const Layout& layout);
// With everything else: "interleaved_1f1b x3, 64 x 1, ZeRO 1, sequence
// parallel, recompute": 64 micro-batches of 1 example.
std::string DetailsOf(const Layout& layout);

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
