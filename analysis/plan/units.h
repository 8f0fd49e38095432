// ZeRO's units on one rank, and the duration of the engine's order of
// all-gathers and reduce-scatters (parallel/sharded/order).
#ifndef RANKWISE_ANALYSIS_PLAN_UNITS_H_
#define RANKWISE_ANALYSIS_PLAN_UNITS_H_

#include <cstddef>
#include <vector>

#include "analysis/plan/layout.h"
#include "analysis/plan/link_run.h"
#include "analysis/plan/model.h"
#include "analysis/plan/work.h"
#include "parallel/sharded/order/unit_order.h"
#include "parallel/sharded/order/unit_passes.h"

namespace rankwise::plan {

// Seconds per layer and micro-batch. `backward` excludes the recomputed forward
// if the stage recomputes it as a whole.
struct SectionSeconds {
  double forward = 0, backward = 0;
};

// Layers as sections, each with a unit (--units=block).
struct UnitSections {
  UnitLayout layout;
  std::vector<SectionSeconds> seconds;
  std::vector<SectionRange> stages;
};

// Returns sections and units of a rank's `stages`, in order of forward. A tied
// head uses the embedding's unit, if that is among them, or its own unit for
// the copy of an embedding on another rank.
UnitSections UnitSectionsOf(const Model& model, const Layout& layout,
                            const Engine& engine,
                            const std::vector<Stage>& stages,
                            const LayerWork& work);

// Returns the order of --prefetch=1.
UnitOrderConfig UnitOrderOf(const Layout& layout);

// Seconds of a unit's all-gather and reduce-scatter.
struct UnitSeconds {
  double gather = 0, scatter = 0;
};

// Times passes whose collectives run one after another on a link, alongside
// computation.
class TimedUnits : private Units, public UnitPasses {
 public:
  TimedUnits(UnitSections sections, std::vector<UnitSeconds> units,
             const UnitOrderConfig& config, double speed_during_communication);

  double now() const { return link_.now(); }
  double exposed() const { return link_.exposed(); }  // so far

 private:
  void ComputeForward(size_t section) override {
    link_.Compute(seconds_[section].forward);
  }
  void ComputeBackward(size_t section) override {
    link_.Compute(seconds_[section].backward);
  }
  bool Gathered(size_t unit) const override;
  void StartGather(size_t unit) override;
  void FinishGather(size_t unit) override;
  void Invalidate(size_t unit) override;
  void StartReduce(size_t unit) override;
  void FinishReduce(size_t unit) override { link_.WaitUntil(reduced_[unit]); }

  const std::vector<SectionSeconds> seconds_;
  const std::vector<UnitSeconds> units_;
  LinkRun link_;
  std::vector<double> gathered_, reduced_;  // completion times
};

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_UNITS_H_
