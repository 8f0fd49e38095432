// ZeRO's units on one rank, in the order in which the engine gathers and
// reduces them (parallel/sharded/order): how long that takes, and the memory
// that it needs.
#ifndef RANKWISE_ANALYSIS_PLAN_UNITS_H_
#define RANKWISE_ANALYSIS_PLAN_UNITS_H_

#include <cstddef>
#include <vector>

#include "analysis/plan/layout.h"
#include "analysis/plan/link_run.h"
#include "analysis/plan/model.h"
#include "analysis/plan/work.h"
#include "parallel/sharded/order/unit_bytes.h"
#include "parallel/sharded/order/unit_order.h"

namespace rankwise::plan {

// A layer: seconds of one micro-batch, and the units that it uses. `backward`
// is without the forward where its stage runs that again as a whole.
struct Section {
  double forward = 0, backward = 0;
  std::vector<size_t> units = {};
};

// Sections [begin, end), such as those of a stage.
struct SectionRange {
  size_t begin = 0, end = 0;
};

struct UnitSections {
  std::vector<double> parameters;  // elements of each unit, not yet sharded
  std::vector<Section> sections;
  std::vector<SectionRange> stages;
};

// A unit per layer (--units=block), of `stages`, which are a rank's in order of
// forward. A tied head uses the embedding's unit, if that is among them, or a
// unit of its own for the copy of an embedding on another rank.
UnitSections UnitSectionsOf(const Model& model, const Layout& layout,
                            const Engine& engine,
                            const std::vector<Stage>& stages,
                            const LayerWork& work);

// With --prefetch=1.
UnitOrderConfig UnitOrderOf(const Layout& layout);

// Runs the sections of one rank in that order. Derived classes say what they
// cost.
class UnitPasses {
 public:
  virtual ~UnitPasses() = default;

  // Over the whole model. `reduces`: the last micro-batch of a step; an update
  // follows.
  void Forward();
  void Backward(bool reduces);
  // Of a pipeline: the passes of its stages, CompleteStep after the last
  // backward of each, and EndStep.
  void StageForward(const SectionRange& stage);
  void StageBackward(const SectionRange& stage);
  void CompleteStep(const SectionRange& stage);
  void EndStep();

  SectionRange All() const { return {0, sections_.size()}; }

 protected:
  UnitPasses(std::vector<Section> sections, Units& units, size_t count,
             const UnitOrderConfig& config);

  virtual void Compute(double /*seconds*/) {}
  // All sections that use the unit have run backward.
  virtual void GradientsDone(size_t /*unit*/) {}

 private:
  void RunBackward(const SectionRange& range, bool reduces);
  // A head shares it with an embedding.
  bool IsTied(size_t unit) const {
    return order_.first_section(unit) != order_.last_section(unit);
  }

  const std::vector<Section> sections_;
  const size_t count_;
  UnitOrder order_;
};

// Seconds of a unit's all-gather and reduce-scatter.
struct UnitSeconds {
  double gather = 0, scatter = 0;
};

// Times passes whose collectives run one after another on one link, alongside
// computation.
class TimedUnits : private Units, public UnitPasses {
 public:
  TimedUnits(std::vector<Section> sections, std::vector<UnitSeconds> units,
             const UnitOrderConfig& config, double speed_during_communication);

  double now() const { return link_.now(); }
  double exposed() const { return link_.exposed(); }  // so far

 private:
  void Compute(double seconds) override { link_.Compute(seconds); }
  bool Gathered(size_t unit) const override;
  void StartGather(size_t unit) override;
  void FinishGather(size_t unit) override;
  void Invalidate(size_t unit) override;
  void StartReduce(size_t unit) override;
  void FinishReduce(size_t unit) override { link_.WaitUntil(reduced_[unit]); }

  const std::vector<UnitSeconds> units_;
  LinkRun link_;
  std::vector<double> gathered_, reduced_;  // when
};

// The memory that passes need beyond a rank's share.
class UnitMemory : private UnitBytes, public UnitPasses {
 public:
  UnitMemory(UnitSections units, const UnitOrderConfig& order,
             const UnitBytesConfig& bytes);

  using UnitBytes::peak;

 private:
  void GradientsDone(size_t unit) override;
};

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_UNITS_H_
