// What one micro-batch takes on one rank: the kernels of the model's layers and
// the exchanges along tp and cp between them, and what their forward keeps.
#ifndef RANKWISE_ANALYSIS_PLAN_WORK_H_
#define RANKWISE_ANALYSIS_PLAN_WORK_H_

#include "analysis/plan/cluster.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/model.h"
#include "parallel/sharded/order/unit_bytes.h"
#include "trainers/models/memory/layer_memory.h"

namespace rankwise::plan {

// Seconds of one micro-batch; those of an axis are what computing does not
// hide.
struct PassSeconds {
  double forward = 0, input_grad = 0, weight_grad = 0;  // kernels
  double recompute = 0;                                 // kernels, in backward
  double tp_forward = 0, tp_backward = 0;
  double cp_forward = 0, cp_backward = 0;

  double Forward() const { return forward + tp_forward + cp_forward; }
  double Backward() const {
    return input_grad + weight_grad + recompute + tp_backward + cp_backward;
  }
  PassSeconds& operator+=(const PassSeconds& other);
};
PassSeconds operator*(double times, PassSeconds seconds);

// A layer, or a stage of several.
struct Work {
  PassSeconds seconds;
  double kept_bytes = 0;  // by one micro-batch's forward for its backward
  // On top of these from I to W, in schedules that cut backward.
  double until_weight_grad_bytes = 0;

  Work& operator+=(const Work& other);
};
Work operator*(double times, Work work);

// Shapes of the parameters on this rank. `head` is listed even if its weight is
// tied.
struct LayerShapes {
  ParameterShapes embedding, block, norm, head;
};

struct LayerWork {
  Work embedding, block, norm, head;
  LayerShapes shapes;
  double input_bytes = 0;  // of a block, on this rank: what a stage receives

  Work Of(const Stage& stage) const;
};

// Of a model that CheckLayout accepts. A kernel takes the longer of its FLOPs
// at the device's efficiency and its bytes of memory. Takes tp, cp, the
// micro-batch, recomputation and sequence parallelism from `layout`, and
// whether it is data-parallel and has ZeRO; where CastsOnce, the micro-batches,
// too.
LayerWork WorkOf(const Model& model, const Layout& layout, const Engine& engine,
                 const Cluster& cluster, CostSide side);

// What a block's forward keeps (docs/memory.md, "Activations"; Korthikanti et
// al. 2022, table 2 and section 5, for engines whose attention is not fused).
double BlockKeptBytes(const Model& model, const Layout& layout,
                      const Engine& engine);

// Bytes of a value of the residual stream, which is 16-bit where ZeRO gathers
// 16-bit parameters; and of a value that a norm keeps of its input.
double StreamBytes(const Layout& layout, const Engine& engine);
double NormInputBytes(const Layout& layout, const Engine& engine);

// Whether weights are cast once a step, for all of its micro-batches.
bool CastsOnce(const Layout& layout);

// Whether a stage runs its whole forward again before its backward, as those of
// a pipeline do.
bool RunsStagesAgain(const Layout& layout, const Engine& engine);

// Whether the stage's head has a copy of a tied weight, as the embedding that
// owns it is on another rank.
bool CopiesTiedWeight(const Model& model, const Layout& layout,
                      const Stage& stage);

// Number of parameters of a stage on this rank, including a copied tied weight,
// and the number after padding for ZeRO.
UnitSize SizeOfStage(const Model& model, const Layout& layout,
                     const Stage& stage, const LayerWork& work);
double ParametersOf(const Model& model, const Layout& layout,
                    const Stage& stage, const LayerWork& work);

// Number of values that this rank passes between blocks for one micro-batch.
double StreamValues(const Model& model, const Layout& layout);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_WORK_H_
