// Pipeline schedules as data: every rank's actions in order. Properties of a
// schedule; schedules by name (builders.h cites the papers) and their CSV
// files; a validation that finds deadlocks and other errors before anything
// runs; and the cutting of a model's layers into stages.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "parallel/pipeline/schedule/costs.h"

namespace rankwise {

// Computation, as in the papers: F forward; B the whole backward; I and W its
// halves, the gradients of the stage's input and of its weights. Communication:
// sends from and receives by a stage.
enum class ActionKind : uint8_t {
  kForward,       // F
  kBackward,      // B
  kInputGrad,     // I
  kWeightGrad,    // W
  kSendForward,   // SEND_F: this stage's output, to the next stage
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

// Returns "F", "SEND_B" etc.
absl::string_view NameOf(ActionKind kind);

struct Action {
  int32_t stage = 0;
  int32_t micro_batch = 0;
  ActionKind kind = ActionKind::kForward;
  // Whether this B may overlap with the preceding computation in the rank's
  // list, an F (torch's OVERLAP_F_B). Sequential execution runs the F first.
  bool overlapped = false;

  bool operator==(const Action& other) const = default;
};

// Returns "0F3" for stage 0, forward, micro-batch 3; "1SEND_B0". The notation
// of torch.distributed.pipelining's CSV files, without overlaps.
std::string ToString(const Action& action);

struct Schedule {
  std::string name;  // "1f1b", or the path of the file from which it was read
  int num_micro_batches = 0;
  std::vector<int> rank_of_stage;            // [num_stages]
  std::vector<std::vector<Action>> actions;  // [num_ranks]

  int num_ranks() const { return static_cast<int>(actions.size()); }
  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  std::vector<int> StagesOf(int rank) const;  // ascending
};

bool HasCommunication(const Schedule& schedule);

// Returns the same computation in the same order, without communication.
Schedule ComputationOf(const Schedule& schedule);

// Returns the actions of `schedule` on its first `num_micro_batches`
// micro-batches, in the same order. Valid if `schedule` is, because
// micro-batches never wait for one another. For a step with fewer micro-batches
// than the others.
Schedule FirstMicroBatches(const Schedule& schedule, int num_micro_batches);

// The numbered values that stages exchange: the output of a stage's forward,
// and the gradient of a stage's input.
class Values {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  // `schedule` must outlive the object.
  explicit Values(const Schedule& schedule)
      : rank_of_stage_(schedule.rank_of_stage),
        stages_(schedule.num_stages()),
        micro_batches_(schedule.num_micro_batches) {}

  size_t count() const {
    return static_cast<size_t>(2 * stages_) *
           static_cast<size_t>(micro_batches_);
  }
  // Returns the value from another stage that the computation `action` needs.
  size_t NeededBy(const Action& action) const;
  // Returns the value that the computation `action` makes for another stage.
  size_t MadeBy(const Action& action) const;
  // Returns the value that a send or receive transfers.
  size_t CarriedBy(const Action& action) const;
  // Return the stage that makes or uses a value, and its rank.
  int MakerOf(size_t value) const;
  int UserOf(size_t value) const;
  int RankOfMaker(size_t value) const { return rank_of_stage_[MakerOf(value)]; }
  int RankOfUser(size_t value) const { return rank_of_stage_[UserOf(value)]; }
  bool CrossesRanks(size_t value) const {
    return RankOfMaker(value) != RankOfUser(value);
  }
  // Return the send or receive of a value.
  Action SendOf(size_t value) const;
  Action ReceiveOf(size_t value) const;

 private:
  enum Kind { kOutput, kGradient };  // a stage's output, its input's gradient

  // Returns kNone if there is no stage `maker`, or no user of the value.
  size_t Number(Kind kind, int maker, int micro_batch) const;
  int MicroBatchOf(size_t value) const;
  bool IsGradient(size_t value) const { return value >= count() / 2; }

  const std::vector<int>& rank_of_stage_;
  int stages_;
  int micro_batches_;
};

// Calls visit(rank, i) for every actions[rank][i], each after the preceding
// actions on its rank and after the action on another stage that makes the
// needed value, or, if the schedule has communication, that sends it. Returns,
// per rank, the number of visited actions: all, unless ranks wait for each
// other in a cycle. Linear in the number of actions. The schedule's stages,
// micro-batches and ranks must be in range.
std::vector<size_t> DryRun(
    const Schedule& schedule,
    const std::function<void(int rank, size_t position)>& visit);

// DryRun with times: a computation starts once the preceding ones on its rank
// are done and the needed value has arrived. Calls visit for every computation,
// and for each message with a duration as the send of its value. `schedule`
// must have computation only; `costs` must have passed CheckCosts.
void TimedDryRun(
    const Schedule& schedule, const SimulationCosts& costs,
    const std::function<void(int rank, const Action& action,
                             double start_seconds, double end_seconds)>& visit);

// Returns the order in which one host thread issues the actions of all ranks,
// as the rank of each action. Every rank's list keeps its order, and an action
// that needs another stage's value comes after its send. The order is that of
// the start times if F, I and W took equally long, B twice as long, and
// messages no time, so that no device idles while the host issues another
// device's work. Shorter than the number of actions if ranks wait for each
// other in a cycle. Linear except for the sort.
std::vector<int> IssueOrder(const Schedule& schedule);

// The points at which the buffers of sends become free. A rank sends a value
// only after the preceding actions in its list, so a receiver of that value can
// infer that the messages those actions needed have arrived. Waiting for those
// sends does not block, and the backend need not be polled: Gloo reports
// completion only to a wait. Nothing proves the arrival of a rank's last sends.
class SendReleases {
 public:
  explicit SendReleases(const Schedule& schedule);

  // Calls visit(sent) for each sent value that is first known to have arrived
  // once `received` has. Nothing for Values::kNone.
  template <typename Visit>
  void VisitArrived(size_t received, const Visit& visit) const {
    if (received == Values::kNone) return;
    for (size_t sent = first_[received]; sent != Values::kNone;
         sent = next_[sent])
      visit(sent);
  }

 private:
  // Linked lists in arrays, for speed: a planner builds thousands of schedules.
  // first_[received] is the head, next_[sent] the value after `sent`.
  std::vector<size_t> first_, next_;
};

struct ScheduleShape {
  int num_ranks = 1;          // p
  int num_micro_batches = 1;  // m
  int chunks = 0;  // v, stages per rank; 0 for the schedule's own (2 for
                   // interleaved_1f1b, zbv and dualpipev, else 1)
};

// Returns naive, gpipe, 1f1b, interleaved_1f1b, zero_bubble_h1, zero_bubble_h2,
// zbv, dualpipev, zero_bubble_auto.
std::vector<std::string> ScheduleNames();
// Returns whether `name` is one of ScheduleNames() and not a file's path.
// zero_bubble_auto may have a limit of activations: "zero_bubble_auto:6" stores
// at most 6 micro-batches per rank; the default is 1F1B's, p.
bool IsScheduleName(absl::string_view name);
// Returns the stages per rank for ScheduleShape::chunks = 0; 1 for a file.
int DefaultChunks(absl::string_view name);

// Builds a schedule with computation only. Every schedule supports any number
// of micro-batches, except dualpipev, which needs 2p. Each stage runs its F,
// its B or I, and its B or W in ascending micro-batch order, so that gradients
// accumulate in the order of a single process. zero_bubble_auto plans with
// `costs`, of one stage per rank; without stages in them F, I and W take
// equally long. InvalidArgument lists the known schedules or names the
// unsupported part of the shape or the invalid cost.
absl::StatusOr<Schedule> MakeSchedule(absl::string_view name,
                                      const ScheduleShape& shape,
                                      const SimulationCosts& costs = {});

// Returns MakeSchedule's result if IsScheduleName(name), else the schedule of
// that CSV file, validated and without communication. The file must match the
// nonzero numbers of `shape`.
absl::StatusOr<Schedule> OpenSchedule(const std::string& name,
                                      const ScheduleShape& shape,
                                      const SimulationCosts& costs = {});

// Builds the schedule of an evaluation: F of all micro-batches through all
// stages, with sends and receives. A stage computes as early as possible, and a
// rank with several stages alternates between them, so that micro-batches are
// pipelined for any placement. All ranks' lists agree with one global order of
// actions and messages, so even sends that wait for their receive cannot
// deadlock.
Schedule MakeForwardSchedule(std::vector<int> rank_of_stage, int num_ranks,
                             int num_micro_batches);

// Files have the format of torch.distributed.pipelining: one row per rank, one
// cell per action in the notation of ToString(Action), or per overlapped pair:
// "(0F3;3B1)OVERLAP_F_B". Empty cells, which that library writes for idle time
// slots, are ignored.
//
// `path` becomes the schedule's name and appears in messages. InvalidArgument
// names the file, row and column (from 1) of a cell that is not an action, or
// of a stage that another rank also has. Does not validate; see Validate.
absl::StatusOr<Schedule> ParseScheduleCsv(const std::string& path,
                                          absl::string_view text);

absl::StatusOr<Schedule> ReadScheduleCsv(const std::string& path);

// Omits communication; torch.distributed.pipelining and AddCommunication add
// it.
std::string ToCsv(const Schedule& schedule);

// Replaces the file. An error names it.
absl::Status WriteScheduleCsv(const Schedule& schedule,
                              const std::string& path);

struct ScheduleFacts {
  // By rank: the maximum number of micro-batches between forward and weight
  // gradient, summed over the rank's stages, in units of one stage's
  // activations; divide by the stages per rank for whole micro-batches.
  std::vector<int> peak_activations;
};

// Returns InvalidArgument that names the rank, the position in its list and the
// action: an action that is missing, duplicate, of an unknown stage or
// micro-batch, on a different rank than the stage's other actions, before an
// action on its own rank that it needs, or overlapped with one; or, for a
// deadlock, the cycle of waits. Accepts schedules with and without
// communication.
absl::StatusOr<ScheduleFacts> Validate(const Schedule& schedule);

// First layer of every stage except the first: {2, 5} cuts 8 layers into [0,
// 2), [2, 5), [5, 8).
using Cuts = std::vector<size_t>;

// Cuts layers into contiguous, nonempty stages that minimise the cost of the
// costliest stage; exact, by dynamic programming. Prefers later cuts among
// equally good ones. InvalidArgument with both numbers for more stages than
// layers, or for a cost that is negative or not finite.
absl::StatusOr<Cuts> BalanceLayers(absl::Span<const double> layer_costs,
                                   size_t num_stages);

// Parses "2,5", the cuts of a model of `num_layers` into `num_stages`.
// InvalidArgument names the cut that is outside the model, not ascending or not
// a number, or reports too few or too many cuts.
absl::StatusOr<Cuts> ParseCuts(absl::string_view text, size_t num_layers,
                               size_t num_stages);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_
