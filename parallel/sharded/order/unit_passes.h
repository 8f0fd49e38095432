// Runs a rank's passes through a model in the engine's order of units, to time
// them or to count their memory. Without tensors.
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
  std::set<size_t> tied;  // units with a weight that two sections share
  std::vector<std::vector<UnitUse>> sections;
};

// Sections [begin, end), such as a stage's.
struct SectionRange {
  size_t begin = 0, end = 0;
};

// A forward or backward pass of one micro-batch.
struct SectionPass {
  SectionRange sections;
  bool backward = false;
  bool completes = false;  // whether it completes the sections' gradients
};

// Subclasses define the cost of a pass.
class UnitPasses {
 public:
  virtual ~UnitPasses() = default;

  // Runs a step of `micro_batches`, each through all sections. `reduces_each`:
  // reduces gradients after every micro-batch, not only after the last.
  void RunMicroBatches(int64_t micro_batches, bool reduces_each = false);
  // Runs a step with interleaved micro-batches, as in a pipeline.
  void RunPasses(const std::vector<SectionPass>& passes);

  // The phases of a step.
  void Forward(const SectionRange& sections);
  // `reduces`: reduce units whose gradients are complete.
  void Backward(const SectionRange& sections, bool reduces);
  // For interleaved micro-batches: call after the last backward of `sections`.
  void Complete(const SectionRange& sections);
  // Call after the backward of a micro-batch, or of all interleaved ones.
  void Finish(bool updates);

  SectionRange All() const { return {0, layout_.sections.size()}; }

 protected:
  // `units` must outlive the object.
  UnitPasses(Units& units, UnitLayout layout, const UnitOrderConfig& config);

  virtual void ComputeForward(size_t /*section*/) {}
  virtual void ComputeBackward(size_t /*section*/) {}
  // Called when backward has computed the gradients of `use`.
  virtual void GradientsDone(size_t /*section*/, const UnitUse& /*use*/) {}

 private:
  const UnitLayout layout_;
  const bool takes_turns_;
  UnitOrder order_;
  // By unit: elements whose gradients this backward has yet to compute, and
  // elements not yet passed to Complete.
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
