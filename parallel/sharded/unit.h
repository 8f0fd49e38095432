// Parameters that are gathered, freed and reduced together, and their memory
// layout. Private to this folder; others use fully_sharded.h.
//
// Each of n ranks has c = ceil(d0 / n) rows of every parameter [d0, ...], the
// last ranks fewer or none. A unit's buffer has one line per rank: the rank's
// rows of one parameter after the other, each padded to c rows:
//
//   rank 0 | a: rows 0..c-1 | b: rows 0..c'-1 |
//   rank 1 | a: rows c..2c-1| b: ...          |   all-gather: input one line,
//   ...                                           output all of them
#ifndef RANKWISE_PARALLEL_SHARDED_UNIT_H_
#define RANKWISE_PARALLEL_SHARDED_UNIT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/exchange.h"
#include "parallel/comm/exposed_comm.h"
#include "parallel/ddp/model_state.h"
#include "parallel/device/device_event.h"
#include "parallel/sharded/order/unit_bytes.h"
#include "parallel/sharded/order/unit_order.h"
#include "parallel/sharded/sharding.h"
#include "torch/types.h"

namespace rankwise {

struct ShardedParameter {
  std::string name;
  torch::Tensor whole;   // the module's; `memory`, or `no_memory` while freed
  torch::Tensor memory;  // the gathered values; autograd saves views of it
  torch::Tensor no_memory;  // ZeRO 3: throws when read, naming the parameter
  torch::Tensor rows;       // this rank's rows, updated by the optimizer
  int64_t begin = 0;        // first row
  int64_t chunk = 0;        // elements in a line of the buffer
  int64_t offset = 0;       // of the chunk in the line, in elements
  bool counted = false;     // whether its gradient is in the unsharded bytes

  bool trained() const { return whole.requires_grad(); }
};

// Not thread-safe. All ranks must make the same calls in the same order. Throws
// the process group's exceptions.
class ShardedUnit {
 public:
  // Takes over the parameters' memory; afterwards they are not gathered.
  // Arguments passed by reference must outlive the unit.
  ShardedUnit(std::string name, const std::vector<NamedTensor>& parameters,
              const ShardingGroups& groups, const ShardingConfig& config,
              UnshardedBytes& unsharded);
  ShardedUnit(const ShardedUnit&) = delete;

  const std::string& name() const { return name_; }
  std::vector<ShardedParameter>& parameters() { return parameters_; }
  int64_t trained() const;  // number of trained parameters

  // Returns whether the unit is gathered or being gathered.
  bool gathered() const { return state_ != State::kSharded; }
  // Starts the all-gather. The unit must not be gathered.
  void StartGather();
  // Blocks until the all-gather completes, if one is in flight.
  void FinishGather();
  // Marks the gathered copy as stale after an update of the ranks' rows; `free`
  // also frees it.
  void Invalidate(bool free);

  // Call before backward adds to a gradient from an earlier micro-batch, if
  // there is one: converts it to the type of `rows`, so that sums are not
  // rounded to the parameters' narrower type.
  void WidenGradient(ShardedParameter& parameter);
  // Counts the memory of a parameter's gradient, which backward has written.
  void CountGradient(ShardedParameter& parameter);
  // Starts the reduce-scatter of the parameters' gradients; a missing gradient
  // contributes zeros.
  void StartReduce();
  // If a reduce-scatter is in flight, blocks until it completes, then adds the
  // mean of the ranks' gradients to the gradients of `rows`.
  void FinishReduce();
  // Blocks until copies to and from host memory complete. Call before the
  // optimizer reads gradients or writes rows there.
  void AwaitHostCopies();
  // For ZeRO 1, which holds full gradients until the update.
  void DropGradients();

  // Return the exposed communication time since the last call.
  PendingDuration TakeGatherWait() { return gather_wait_.Take(); }
  PendingDuration TakeReduceWait() { return reduce_wait_.Take(); }

 private:
  enum class State { kSharded, kGathering, kWhole };

  void Divide(const NamedTensor& parameter);
  void Allocate();
  static void Free(ShardedParameter& parameter);
  void SetGradient(ShardedParameter& parameter, const torch::Tensor& mean);
  void MoveRowsToHost();
  void SetHostGradients(const torch::Tensor& mean);

  const std::string name_;
  const ShardingGroups& groups_;
  const ShardingConfig& config_;
  UnshardedBytes& unsharded_;
  std::vector<ShardedParameter> parameters_;
  int64_t line_ = 0;         // elements in a line of the buffers
  int64_t whole_bytes_ = 0;  // of the parameters while allocated
  int64_t gradient_bytes_ = 0;
  // With an offloaded optimizer: one line with the rows and one with their
  // gradients, in pinned memory, so that there is one copy each way and the
  // host blocks once per step.
  torch::Tensor host_rows_, host_gradients_;
  std::optional<DeviceEvent> host_copy_;  // recorded after the last copy
  State state_ = State::kSharded;
  ExposedComm gather_wait_, reduce_wait_;
  // Exchanges in flight. They may finish on a different stream than they
  // started on, because each stage of a pipeline has its own.
  std::optional<Exchange> gather_, reduce_;
};

// A model's units, for UnitOrder.
class ShardedUnits final : public Units {
 public:
  explicit ShardedUnits(int zero) : zero_(zero) {}

  void Add(std::unique_ptr<ShardedUnit> unit) {
    units_.push_back(std::move(unit));
  }
  const std::vector<std::unique_ptr<ShardedUnit>>& all() const {
    return units_;
  }
  ShardedUnit& operator[](size_t unit) const { return *units_[unit]; }
  // Returns the largest number of ZeRO 3 units allocated at the same time.
  int peak_gathered() const { return peak_gathered_; }

  bool Gathered(size_t unit) const override { return units_[unit]->gathered(); }
  void StartGather(size_t unit) override;
  void FinishGather(size_t unit) override { units_[unit]->FinishGather(); }
  void Invalidate(size_t unit) override {
    units_[unit]->Invalidate(/*free=*/zero_ == 3);
  }
  void StartReduce(size_t unit) override { units_[unit]->StartReduce(); }
  void FinishReduce(size_t unit) override { units_[unit]->FinishReduce(); }

 private:
  const int zero_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  int peak_gathered_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_SHARDED_UNIT_H_
