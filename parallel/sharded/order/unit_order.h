// When ZeRO's units are gathered, given up and reduced.
// FullyShardedDataParallel executes this order, and //analysis/plan times it.
#ifndef RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_ORDER_H_
#define RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace rankwise {

// What can be done with a rank's units, numbered from 0.
class Units {
 public:
  virtual ~Units() = default;

  // Whole, or about to be.
  virtual bool Gathered(size_t unit) const = 0;
  // Of a unit that is not gathered.
  virtual void StartGather(size_t unit) = 0;
  // Waits for it, if it is under way.
  virtual void FinishGather(size_t unit) = 0;
  // Discards what was gathered, if anything; ZeRO 3 also frees it.
  virtual void Invalidate(size_t unit) = 0;
  virtual void StartReduce(size_t unit) = 0;
  virtual void FinishReduce(size_t unit) = 0;
};

struct UnitOrderConfig {
  int zero = 3;
  // Units whose parameters are gathered ahead of the one that computes.
  int prefetch = 1;
  // As in a pipeline: the backward that follows a forward need not be of the
  // same micro-batch.
  bool micro_batches_take_turns = false;
};

// Of a model that runs as a sequence of sections. `units` must outlive it.
class UnitOrder {
 public:
  UnitOrder(Units& units, size_t count, const UnitOrderConfig& config)
      : units_(units), config_(config), uses_(count) {}
  UnitOrder(const UnitOrder&) = delete;

  // The next part of the model, in order of forward, and the units it uses,
  // each once.
  void AddSection(std::vector<size_t> units);
  const std::vector<size_t>& units_of(size_t section) const {
    return sections_[section];
  }
  // A unit's backward begins with that of the last section that uses it, and
  // ends with that of the first.
  size_t first_section(size_t unit) const { return uses_[unit].first_section; }
  size_t last_section(size_t unit) const { return uses_[unit].last_section; }

  // Before and after a section's forward. `trains`: a backward follows.
  void BeginForward(size_t section);
  void EndForward(size_t section, bool trains);
  void BeginBackward(size_t section);
  // Call once all of the unit's gradients are computed; `reduces`: start
  // reducing them.
  void FinishUnit(size_t unit, bool reduces);
  // After the backward of a micro-batch. Not where micro-batches take turns.
  void EndBackward();

  // Starts the unit's reduction; first waits for the oldest, so that at most
  // `prefetch` + 1 are in flight.
  void Reduce(size_t unit);
  // Waits for all reductions. `updates`: an update follows.
  void EndStep(bool updates);
  // The rows have changed: discards everything gathered.
  void InvalidateAll();

  // How often, since the last call, the unit was needed before its all-gather
  // had been started.
  int64_t TakeMisses(size_t unit);

 private:
  struct Use {
    size_t sections = 0, first_section = 0, last_section = 0;
    int64_t misses = 0;
  };

  void Need(size_t unit);
  // Starts the all-gathers of the units that come after those of `section`, in
  // forward (`step` 1) or in backward (-1).
  void Prefetch(size_t section, int step);

  Units& units_;
  const UnitOrderConfig config_;
  std::vector<Use> uses_;                      // by unit
  std::vector<std::vector<size_t>> sections_;  // the units of each
  std::deque<size_t> reducing_;                // the oldest first
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_ORDER_H_
