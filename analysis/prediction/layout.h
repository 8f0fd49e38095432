// One way to divide training among ranks, as run by studies, predicted,
// planned, or recorded.
#ifndef RANKWISE_ANALYSIS_PREDICTION_LAYOUT_H_
#define RANKWISE_ANALYSIS_PREDICTION_LAYOUT_H_

#include <cstdint>
#include <string>

namespace rankwise {

// Activations that backward recomputes instead of keeping them.
enum class Recompute {
  kNone,
  kAttention,  // the attention weights (Korthikanti et al. 2022, section 5)
  kFull,       // everything but inputs
};

// Ranks form the mesh (pp, dp, cp, tp); the last axis varies fastest.
struct Layout {
  int64_t pp = 1, dp = 1, cp = 1, tp = 1;
  int zero = 0;                   // ZeRO stage; 0 for replicas
  std::string schedule = "1f1b";  // if pp > 1
  int64_t chunks = 0;         // stages per rank; 0 for the schedule's default
  int64_t micro_batch = 1;    // examples
  int64_t micro_batches = 1;  // per step
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;
  double bucket_bytes = 0;     // of DDP's all-reduces; 0 if as recorded
  int64_t ranks_per_host = 0;  // in order of rank; 0 if all on one host
  bool hierarchical = false;   // ddp's --all_reduce=hierarchical

  friend auto operator<=>(const Layout&, const Layout&) = default;

  int64_t ranks() const { return pp * dp * cp * tp; }
  int64_t hosts() const;
  int64_t stages_per_rank() const;
  int64_t stages() const { return pp * stages_per_rank(); }
  int64_t global_batch() const { return micro_batch * micro_batches * dp; }
  // Whether ranks are divided only along dp, or there is one rank.
  bool is_data_parallel() const { return pp * cp * tp == 1; }
  bool interleaves() const { return schedule == "interleaved_1f1b"; }
  // Whether the schedule splits backward into an input-gradient and a
  // weight-gradient pass.
  bool cuts_backward() const;

  // Returns "ddp x8", "ddp x8 on 4 hosts", "1f1b pp 4 x dp 2, 8 micro-batches",
  // "interleaved_1f1b x4 pp 2, 8 micro-batches" (4 chunks).
  std::string Name() const;
  // Returns "pp2xtp2", as in a study's --layouts; "" for one rank.
  std::string AxesName() const;
  // Returns "pp 8 x dp 2 x tp 8", or "1 rank".
  std::string MeshName() const;
  // Returns everything but the mesh: "interleaved_1f1b x3, 64 x 1, ZeRO 1,
  // sequence parallel, recompute" (64 micro-batches of 1 example).
  std::string Details() const;
  // Returns the mesh and the details: "pp 2 x dp 2, 1f1b, 4 x 1".
  std::string FullName() const;
};

struct MeshAxis {
  const char* name;
  int64_t Layout::*ranks;
};

inline constexpr MeshAxis kMeshAxes[] = {{"pp", &Layout::pp},
                                         {"dp", &Layout::dp},
                                         {"cp", &Layout::cp},
                                         {"tp", &Layout::tp}};

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_PREDICTION_LAYOUT_H_
