// The memory that units need beyond a rank's share, without tensors.
#ifndef RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_BYTES_H_
#define RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/sharded/order/unit_order.h"

namespace rankwise {

// Counts the bytes of buffers that exceed this rank's share.
struct UnshardedBytes {
  int64_t now = 0;
  int64_t peak = 0;            // since construction
  bool has_gradients = false;  // whether full gradients are counted

  void Add(int64_t bytes) { peak = std::max(peak, now += bytes); }
};

struct UnitSize {
  int64_t numbers = 0;         // elements of its parameters
  int64_t padded_numbers = 0;  // elements in a buffer of all ranks' lines

  UnitSize& operator+=(const UnitSize& other) {
    numbers += other.numbers;
    padded_numbers += other.padded_numbers;
    return *this;
  }
};

// Returns the size of a unit with parameters of `shapes`, each divided along
// its first dimension.
UnitSize SizeOf(const std::vector<std::vector<int64_t>>& shapes, int64_t ranks);

// Parameters or gradients, divided from some ZeRO stage on.
struct DividedTensors {
  int divided_from = 3;  // first ZeRO stage that divides them
  double row_bytes = 4;  // per element of the rank's own rows
  // The full tensors are bf16, and the rows are separate fp32 copies.
  bool in_bf16 = false;
  bool rows_apart = false;  // separate row copies even in fp32 (offload)
};

// Returns each rank's bytes for `size` on `ranks` ranks at ZeRO stage `zero`.
double BytesHeld(const DividedTensors& tensors, const UnitSize& size, int zero,
                 int64_t ranks);

struct UnitBytesConfig {
  int zero = 3;
  int ranks = 2;  // that share a unit
  // Bytes per gathered element and per gradient element of one micro-batch;
  // sums over several micro-batches are fp32.
  int parameter_bytes = 4;
};

// Counts ShardedUnit's allocations.
class UnitBytes : public Units {
 public:
  UnitBytes(std::vector<UnitSize> units, const UnitBytesConfig& config)
      : units_(std::move(units)), config_(config), states_(units_.size()) {}

  // Counts the full gradients of the unit's `numbers` elements that `section`
  // is the first to use. They become fp32 in the second micro-batch; later ones
  // add nothing.
  void AddGradients(size_t unit, size_t section, int64_t numbers);
  int64_t peak() const { return bytes_.peak; }

  bool Gathered(size_t unit) const override;
  void StartGather(size_t unit) override;
  void FinishGather(size_t unit) override;
  void Invalidate(size_t unit) override;
  void StartReduce(size_t unit) override;
  void FinishReduce(size_t unit) override;

 private:
  enum class At { kSharded, kGathering, kWhole };
  struct Gradients {
    size_t section = 0;
    int64_t bytes = 0;
  };
  struct State {
    At at = At::kSharded;
    std::vector<Gradients> gradients;
  };

  int64_t MessageBytes(size_t unit) const;
  int64_t WholeBytes(size_t unit) const;

  const std::vector<UnitSize> units_;
  const UnitBytesConfig config_;
  std::vector<State> states_;
  UnshardedBytes bytes_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_SHARDED_ORDER_UNIT_BYTES_H_
