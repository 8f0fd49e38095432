// The order in which ZeRO's units are gathered, invalidated and reduced.
// FullyShardedDataParallel executes it, and //analysis/plan times it.
#ifndef RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_ORDER_H_
#define RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace rankwise {

// Operations on a rank's units, numbered from 0.
class Units {
 public:
  virtual ~Units() = default;

  // Returns whether the unit is gathered or being gathered.
  virtual bool Gathered(size_t unit) const = 0;
  // Requires a unit that is not gathered.
  virtual void StartGather(size_t unit) = 0;
  // Blocks until the all-gather completes, if one is in flight.
  virtual void FinishGather(size_t unit) = 0;
  // Discards the gathered copy, if any; ZeRO 3 also frees it.
  virtual void Invalidate(size_t unit) = 0;
  virtual void StartReduce(size_t unit) = 0;
  virtual void FinishReduce(size_t unit) = 0;
};

struct UnitOrderConfig {
  int zero = 3;
  // Number of units gathered ahead of the current one.
  int prefetch = 1;
  // For pipelines: the next backward may belong to another micro-batch.
  bool interleave_micro_batches = false;
};

// The order for a model run as a sequence of sections. `units` must outlive it.
class UnitOrder {
 public:
  UnitOrder(Units& units, size_t count, const UnitOrderConfig& config)
      : units_(units), config_(config), uses_(count) {}
  UnitOrder(const UnitOrder&) = delete;

  // Appends the next section, in forward order, with its units, each once.
  void AddSection(std::vector<size_t> units);
  const std::vector<size_t>& units_of(size_t section) const {
    return sections_[section];
  }
  // A unit's backward begins with that of the last section that uses it and
  // ends with that of the first.
  size_t first_section(size_t unit) const { return uses_[unit].first_section; }
  size_t last_section(size_t unit) const { return uses_[unit].last_section; }

  // Call before and after a section's forward. `trains`: a backward follows.
  void BeginForward(size_t section);
  void EndForward(size_t section, bool trains);
  void BeginBackward(size_t section);
  // Call once all of the unit's gradients are computed. `reduces`: start
  // reducing them.
  void FinishUnit(size_t unit, bool reduces);
  // Call after a micro-batch's backward, unless micro-batches interleave.
  void EndBackward();

  // Starts the unit's reduction; first finishes the oldest one if necessary, so
  // that at most `prefetch` + 1 are in flight.
  void Reduce(size_t unit);
  // Finishes all reductions. `updates`: an update follows.
  void EndStep(bool updates);
  // Discards all gathered copies, after a change of the rows.
  void InvalidateAll();

  // Returns the number of times, since the last call, that the unit was needed
  // before its all-gather had been started.
  int64_t TakeMisses(size_t unit);

 private:
  struct Use {
    size_t sections = 0, first_section = 0, last_section = 0;
    int64_t misses = 0;
  };

  void Need(size_t unit);
  // Starts the all-gathers of the units after those of `section`, in forward
  // (`step` 1) or backward (-1) order.
  void Prefetch(size_t section, int step);

  Units& units_;
  const UnitOrderConfig config_;
  std::vector<Use> uses_;                      // by unit
  std::vector<std::vector<size_t>> sections_;  // units of each section
  std::deque<size_t> reducing_;                // oldest first
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_ORDER_H_
