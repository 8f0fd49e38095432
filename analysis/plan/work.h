// Duration and memory of one micro-batch on one rank: the kernels of the
// model's layers, the exchanges along tp and cp between them, and the
// activations kept by forward.
#ifndef RANKWISE_ANALYSIS_PLAN_WORK_H_
#define RANKWISE_ANALYSIS_PLAN_WORK_H_

#include "analysis/plan/cluster.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/model.h"
#include "parallel/sharded/order/unit_bytes.h"
#include "trainers/models/memory/layer_memory.h"

namespace rankwise::plan {

// Seconds per micro-batch; along an axis, the exposed communication.
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

// A layer, or a stage of several layers.
struct Work {
  PassSeconds seconds;
  double kept_bytes = 0;  // kept by forward for backward, per micro-batch
  // additionally kept from I to W, in schedules that split backward
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
  // a block's input on this rank, as received by a stage
  double input_bytes = 0;

  Work Of(const Stage& stage) const;
};

// Requires a model that CheckLayout accepts. A kernel's duration is the larger
// of its FLOPs at the device's efficiency and its memory traffic. From
// `layout`, uses tp, cp, the micro-batch, recomputation, sequence parallelism,
// ZeRO and whether it is data-parallel; if CastsOnce, also the micro-batches.
LayerWork WorkOf(const Model& model, const Layout& layout, const Engine& engine,
                 const Cluster& cluster, CostSide side);

// Returns the bytes kept by a block's forward (docs/memory.md, "Activations";
// Korthikanti et al. 2022, table 2 and section 5, for engines with unfused
// attention).
double BlockKeptBytes(const Model& model, const Layout& layout,
                      const Engine& engine);

// Return the bytes per value of the residual stream, which is 16-bit if ZeRO
// gathers 16-bit parameters, and of the input kept by a norm.
double StreamBytes(const Layout& layout, const Engine& engine);
double NormInputBytes(const Layout& layout, const Engine& engine);

// Whether weights are cast once per step, for all of its micro-batches.
bool CastsOnce(const Layout& layout);

// Whether a stage reruns its whole forward before its backward, as in a
// pipeline.
bool RunsStagesAgain(const Layout& layout, const Engine& engine);

// Whether the stage's head has a copy of a tied weight because the embedding
// that owns it is on another rank.
bool CopiesTiedWeight(const Model& model, const Layout& layout,
                      const Stage& stage);

// Return the number of parameters of a stage on this rank, including a copied
// tied weight, with and without ZeRO's padding.
UnitSize SizeOfStage(const Model& model, const Layout& layout,
                     const Stage& stage, const LayerWork& work);
double ParametersOf(const Model& model, const Layout& layout,
                    const Stage& stage, const LayerWork& work);

// Returns the number of values that this rank passes between blocks per
// micro-batch.
double StreamValues(const Model& model, const Layout& layout);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_WORK_H_
