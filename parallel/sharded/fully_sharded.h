// Sharded data parallelism, ZeRO 1 to 3 (Rajbhandari et al. 2020), in the style
// of PyTorch's FSDP2: each parameter is divided by rows among the ranks, and
// units of parameters are gathered just before part of the model uses them.
#ifndef RANKWISE_PARALLEL_SHARDED_FULLY_SHARDED_H_
#define RANKWISE_PARALLEL_SHARDED_FULLY_SHARDED_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/ddp/gradient_sync.h"
#include "parallel/sharded/order/unit_bytes.h"
#include "parallel/sharded/order/unit_order.h"
#include "parallel/sharded/sharding.h"
#include "parallel/sharded/unit.h"
#include "torch/types.h"

namespace torch::nn {
class Module;
}

namespace rankwise {

// Parameters that are gathered and freed together.
struct UnitSpec {
  std::string name;
  std::vector<torch::Tensor> parameters;
};

// Exposed communication of a unit, and the number of times that its all-gather
// had not been started when its parameters were needed.
struct UnitWaits {
  std::string unit;
  PendingDuration all_gather, reduce_scatter;
  int64_t prefetch_misses = 0;
};

// An engine for models that run as a sequence of sections, such as the blocks
// of a transformer. Create it before the optimizer, which updates Owned(). A
// step makes DataParallelEngine's calls:
//
//   ASSIGN_OR_RETURN(auto engine, FullyShardedDataParallel::Create(
//       model, {{"block_0", model.block_0->parameters()}, ...}, groups, {}));
//   for (i...) engine->AddSection(model.block_i->parameters());
//   Optimizer optimizer(engine->Owned(), ...);
//   ...
//   engine->BeforeForward();
//   for (i...) x = engine->Run(i, [&](auto& x) { return Block(i, x); }, x);
//   engine->BeforeBackward({loss});
//   loss.backward();
//   engine->AfterBackward();
//   optimizer.Step();
//
// With ZeRO 3 a parameter of the module has values only within Run and
// backward; elsewhere only its rows in Owned() exist. A unit is freed after the
// last section that uses it and gathered again in backward, except the last
// section's units, where backward begins. So at most `prefetch` + 1 units are
// allocated at a time, plus those that several sections share.
// With ZeRO 1 and 2 parameters stay allocated and are gathered once per update,
// each before the forward of its first section.
//
// A pipeline, which interleaves micro-batches, uses it as a GradientSync: after
// BeforeForward it runs sections in any order, passes parameters to Start once
// their last gradient of the step is computed, and calls Finish before the
// update.
class FullyShardedDataParallel : public DataParallelEngine,
                                 public GradientSync {
 public:
  using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

  // Verifies and broadcasts the model over `line`, the ranks that train on
  // different data, and shards it over `groups`, which were created from
  // `line`. Every parameter of `module` must belong to exactly one unit.
  // Collective. The module and the groups' communicator must outlive the
  // result. InvalidArgument names a parameter without a unit or with sparse
  // gradients.
  static absl::StatusOr<std::unique_ptr<FullyShardedDataParallel>> Create(
      torch::nn::Module& module, const std::vector<UnitSpec>& units,
      const Group& line, const ShardingGroups& groups,
      const ShardingConfig& config);

  // Appends the next section, in forward order, with the parameters it uses.
  void AddSection(const std::vector<torch::Tensor>& parameters);
  // Runs section `section`. Also works without gradients, for evaluation.
  torch::Tensor Run(size_t section, const Forward& forward,
                    const torch::Tensor& x);

  // Returns the tensors that this rank updates: its rows of the parameters that
  // require gradients, under the parameters' names.
  std::vector<std::pair<std::string, torch::Tensor>> Owned() const;
  // Returns all units, for checkpoints and memory accounting.
  const std::vector<std::unique_ptr<ShardedUnit>>& units() const {
    return units_.all();
  }
  const ShardingGroups& groups() const { return groups_; }

  void BeforeForward() override;
  void BeforeBackward(const std::vector<torch::Tensor>& outputs) override;
  void AfterBackward() override;
  void SetSync(bool sync) override { sync_ = sync; }
  PendingDuration TakeExposedComm() override;

  void Start(const std::vector<torch::Tensor>& parameters) override;
  // Returns 0; TakeUnitWaits returns the exposed time.
  PendingDuration Finish() override;

  // Returns this rank's rows of a parameter of the module.
  torch::Tensor RowsOf(const torch::Tensor& parameter) const;

  // Returns the exposed time by unit, in order of first use, since the last
  // call. Call either this or TakeExposedComm.
  std::vector<UnitWaits> TakeUnitWaits();
  const UnshardedBytes& unsharded_bytes() const { return unsharded_; }
  // Returns the largest number of ZeRO 3 units allocated at the same time.
  int peak_gathered_units() const { return units_.peak_gathered(); }

 private:
  struct UnitGradients {
    int64_t awaited = 0;   // gradients that this backward has yet to compute
    int64_t to_start = 0;  // gradients not yet passed to Start in this step
    std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;
  };

  FullyShardedDataParallel(torch::nn::Module& module,
                           const ShardingGroups& groups, const Group& line,
                           const ShardingConfig& config, size_t num_units);
  void AddUnit(const UnitSpec& spec,
               const std::map<const void*, std::string>& names);
  void WatchGradients(size_t unit);
  void OnBackwardReached(size_t section);
  void OnGradientReady(size_t unit, size_t parameter);
  void FinishReduces();
  bool reduces() const {
    return (step_syncs_ || config_.reduce_every_micro_batch) &&
           !config_.interleave_micro_batches;
  }

  torch::nn::Module& module_;
  const ShardingGroups groups_;
  const Group line_;
  const ShardingConfig config_;
  UnshardedBytes unsharded_;
  ShardedUnits units_;
  UnitOrder order_;
  std::vector<UnitGradients> gradients_;   // by unit
  std::map<const void*, size_t> unit_of_;  // by parameter
  bool sync_ = true;
  bool step_syncs_ = true;  // whether the current step reduces gradients
  bool buffers_stale_ = true;
  bool is_first_step_ = true;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_SHARDED_FULLY_SHARDED_H_
