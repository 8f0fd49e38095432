// Runs a rank's passes through a model in the engine's order of units: to time
// them, or to count the memory that they need. Without tensors.
#ifndef RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_PASSES_H_
#define RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_PASSES_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "parallel/sharded/order/unit_bytes.h"
#include "parallel/sharded/order/unit_order.h"

namespace rankwise {

// A section's use of a unit. `numbers`: elements that no earlier section uses;
// their gradients are complete after this section's backward.
struct UnitUse {
  size_t unit = 0;
  int64_t numbers = 0;
};

// A rank's part of a model, as a sequence of sections.
struct UnitLayout {
  std::vector<UnitSize> units;
  std::set<size_t> tied;  // with a weight of two sections
  std::vector<std::vector<UnitUse>> sections;
};

// Sections [begin, end), such as those of a stage.
struct SectionRange {
  size_t begin = 0, end = 0;
};

// A forward or backward pass of one micro-batch.
struct SectionPass {
  SectionRange sections;
  bool backward = false;
  bool completes = false;  // the sections' gradients of the step
};

// Subclasses define what a pass costs.
class UnitPasses {
 public:
  virtual ~UnitPasses() = default;

  // A step of `micro_batches`, each through all sections. `reduces_each`: their
  // gradients are reduced after every micro-batch, not only after the last.
  void RunMicroBatches(int64_t micro_batches, bool reduces_each = false);
  // One step in which micro-batches take turns, as in a pipeline.
  void RunPasses(const std::vector<SectionPass>& passes);

  // The phases of a step.
  void Forward(const SectionRange& sections);
  // `reduces`: units whose gradients are complete.
  void Backward(const SectionRange& sections, bool reduces);
  // Where micro-batches take turns, after the last backward of `sections`.
  void Complete(const SectionRange& sections);
  // After the backward of a micro-batch, or of all that take turns.
  void Finish(bool updates);

  SectionRange All() const { return {0, layout_.sections.size()}; }

 protected:
  // `units` must outlive it.
  UnitPasses(Units& units, UnitLayout layout, const UnitOrderConfig& config);

  virtual void ComputeForward(size_t /*section*/) {}
  virtual void ComputeBackward(size_t /*section*/) {}
  // Called when backward has computed the gradients of `use`.
  virtual void GradientsDone(size_t /*section*/, const UnitUse& /*use*/) {}

 private:
  const UnitLayout layout_;
  const bool takes_turns_;
  UnitOrder order_;
  // By unit: numbers whose gradients this backward still owes, and numbers not
  // yet passed to Complete.
  std::vector<int64_t> awaited_, incomplete_;
};

// Counts the memory that passes need beyond a rank's share.
class UnitMemory : private UnitBytes, public UnitPasses {
 public:
  UnitMemory(const UnitLayout& layout, const UnitOrderConfig& order,
             const UnitBytesConfig& bytes)
      : UnitBytes(layout.units, bytes), UnitPasses(*this, layout, order) {}

  using UnitBytes::peak;

 private:
  void GradientsDone(size_t section, const UnitUse& use) override {
    AddGradients(use.unit, section, use.numbers);
  }
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_PASSES_H_
