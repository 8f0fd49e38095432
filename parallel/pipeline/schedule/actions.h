// A pipeline schedule is data: for every rank the actions that it performs, in
// order; and what can be read off it.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_ACTIONS_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_ACTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
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
        stages_(schedule.num_stages()),
        micro_batches_(schedule.num_micro_batches) {}

  size_t count() const {
    return static_cast<size_t>(2 * stages_) *
           static_cast<size_t>(micro_batches_);
  }
  // What another stage must have made before the computation `action`.
  size_t NeededBy(const Action& action) const;
  // What the computation `action` makes for another stage.
  size_t MadeBy(const Action& action) const;
  // What a send or receive carries.
  size_t CarriedBy(const Action& action) const;
  // The stage that makes or needs a value, and its rank.
  int MakerOf(size_t value) const;
  int UserOf(size_t value) const;
  int RankOfMaker(size_t value) const { return rank_of_stage_[MakerOf(value)]; }
  int RankOfUser(size_t value) const { return rank_of_stage_[UserOf(value)]; }
  bool CrossesRanks(size_t value) const {
    return RankOfMaker(value) != RankOfUser(value);
  }
  // The send of a value, or its receive.
  Action SendOf(size_t value) const;
  Action ReceiveOf(size_t value) const;

 private:
  enum Kind { kOutput, kGradient };  // of the stage's input

  // kNone where there is no such stage, or no other stage that needs it.
  size_t Number(Kind kind, int maker, int micro_batch) const;
  int MicroBatchOf(size_t value) const;
  bool IsGradient(size_t value) const { return value >= count() / 2; }

  const std::vector<int>& rank_of_stage_;
  int stages_;
  int micro_batches_;
};

// Calls visit(rank, i) for every actions[rank][i], each after those before it
// on its rank and after the making of what it needs from another stage; where
// the schedule has communication, after the sending of it. Returns, per rank,
// how many actions could be visited: all, unless ranks wait for each other in a
// cycle. Takes time linear in the number of actions. The schedule's stages,
// micro-batches and ranks must be in range.
std::vector<size_t> DryRun(
    const Schedule& schedule,
    const std::function<void(int rank, size_t position)>& visit);

// The order in which one host thread starts the actions of all ranks: the rank
// of each action in turn. Every rank's list keeps its own order, and an action
// that needs what another stage makes comes after the sending of it. The order
// is that of the starts where F, I and W take as long, B twice as long, and
// messages nothing, so that no device is left without work while the host
// issues that of another. Shorter than all actions where ranks wait for each
// other in a cycle; linear but for sorting.
std::vector<int> IssueOrder(const Schedule& schedule);

// When the buffer of a send is free again: value that `rank` receives -> values
// that `rank` sent and that have then certainly arrived, since their receiver
// needed them for an action that comes before the sending of the first in its
// list. Waiting for these sends does not block, and nobody has to poll the
// backend: Gloo tells only whoever waits. Sends that nothing received vouches
// for are in no list.
using SendReleases = std::unordered_map<size_t, std::vector<size_t>>;

SendReleases FindSendReleases(const Schedule& schedule, int rank);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_ACTIONS_H_
