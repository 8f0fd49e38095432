// A pipeline schedule is data: for every rank the actions that it performs, in
// order.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_ACTIONS_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_ACTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace rankwise {

// Computation, as in the papers: F forward; B the whole backward; I and W its
// halves, the gradient of the stage's input and of its weights. Communication:
// what leaves a stage and what arrives at one.
enum class ActionKind : uint8_t {
  kForward,       // F
  kBackward,      // B
  kInputGrad,     // I
  kWeightGrad,    // W
  kSendForward,   // SEND_F: this stage's output, to the stage after
  kRecvForward,   // RECV_F: this stage's input
  kSendBackward,  // SEND_B: the gradient of this stage's input
  kRecvBackward,  // RECV_B: the gradient of this stage's output
};
inline constexpr int kNumActionKinds = 8;

constexpr bool IsCompute(ActionKind kind) {
  return kind <= ActionKind::kWeightGrad;
}
constexpr bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward;
}
constexpr bool IsReceive(ActionKind kind) {
  return kind == ActionKind::kRecvForward || kind == ActionKind::kRecvBackward;
}

// "F", "SEND_B".
absl::string_view NameOf(ActionKind kind);

struct Action {
  int32_t stage = 0;
  int32_t micro_batch = 0;
  ActionKind kind = ActionKind::kForward;

  bool operator==(const Action& other) const = default;
};

// "0F3": stage 0, forward, micro-batch 3; "1SEND_B0". The notation of
// torch.distributed.pipelining's CSV files.
std::string ToString(const Action& action);

struct Schedule {
  std::string name;  // "1f1b", or the path of the file it was read from
  int num_micro_batches = 0;
  std::vector<int> rank_of_stage;            // [num_stages]
  std::vector<std::vector<Action>> actions;  // [num_ranks]

  int num_ranks() const { return static_cast<int>(actions.size()); }
  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  std::vector<int> StagesOf(int rank) const;  // ascending
};

bool HasCommunication(const Schedule& schedule);

// The same computation in the same order, without communication.
Schedule ComputationOf(const Schedule& schedule);

// What `schedule` does with its first `num_micro_batches` micro-batches, in the
// same order. Valid where `schedule` is, because micro-batches never wait for
// one another. For a step with fewer micro-batches than the others.
Schedule FirstMicroBatches(const Schedule& schedule, int num_micro_batches);

// What stages hand to each other, numbered: the output of a stage's forward,
// and the gradient of a stage's input.
class Values {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  // Of a schedule that outlives it.
  explicit Values(const Schedule& schedule)
      : rank_of_stage_(schedule.rank_of_stage),
        stages_(rank_of_stage_.size()),
        micro_batches_(static_cast<size_t>(schedule.num_micro_batches)) {}

  size_t count() const { return 2 * stages_ * micro_batches_; }
  // What another stage must have made before the computation `action`.
  size_t NeededBy(const Action& action) const;
  // What the computation `action` makes for another stage.
  size_t MadeBy(const Action& action) const;
  // What a send or receive carries.
  size_t CarriedBy(const Action& action) const;
  // The stage that makes or needs a value.
  int MakerOf(size_t value) const;
  int UserOf(size_t value) const;
  // Whether these stages are on two ranks.
  bool CrossesRanks(size_t value) const;
  // The send of a value, or its receive.
  Action SendOf(size_t value) const;
  Action ReceiveOf(size_t value) const;

 private:
  size_t Forward(size_t stage, int micro_batch) const {
    return stage * micro_batches_ + static_cast<size_t>(micro_batch);
  }
  size_t Backward(size_t stage, int micro_batch) const {
    return (stages_ + stage) * micro_batches_ +
           static_cast<size_t>(micro_batch);
  }
  bool IsGradient(size_t value) const {
    return value >= stages_ * micro_batches_;
  }

  const std::vector<int>& rank_of_stage_;
  size_t stages_;
  size_t micro_batches_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_ACTIONS_H_
