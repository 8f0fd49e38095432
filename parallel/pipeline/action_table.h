// Where each action of a schedule stands.
#ifndef RANKWISE_PARALLEL_PIPELINE_ACTION_TABLE_H_
#define RANKWISE_PARALLEL_PIPELINE_ACTION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/pipeline/actions.h"

namespace rankwise {

// "rank 1, action 5 (1F3)": positions in a rank's list count from 1.
std::string PlaceOf(int rank, size_t position, const Action& action);

// The position of every action in its rank's list.
class ActionTable {
 public:
  static constexpr int32_t kMissing = -1;

  // InvalidArgument that names the place: a stage, micro-batch or rank that
  // does not exist, an action on another rank than its stage's, a doubled one.
  static absl::StatusOr<ActionTable> Create(const Schedule& schedule);

  // kMissing where there is none.
  int32_t PositionOf(ActionKind kind, int stage, int micro_batch) const {
    const std::vector<int32_t>& positions =
        positions_[static_cast<size_t>(kind)];
    return positions.empty() ? kMissing : positions[Cell(stage, micro_batch)];
  }
  int32_t PositionOf(const Action& action) const {
    return PositionOf(action.kind, action.stage, action.micro_batch);
  }

 private:
  size_t Cell(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * micro_batches_ +
           static_cast<size_t>(micro_batch);
  }
  absl::Status Add(const Schedule& schedule, int rank, size_t position);

  size_t micro_batches_ = 0;
  // [kind][stage, micro-batch]; empty for a kind that does not occur.
  std::vector<int32_t> positions_[kNumActionKinds];
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ACTION_TABLE_H_
