// Pipeline schedules as data: for every rank the actions that it performs, in
// order. Properties of a schedule; schedules by name (builders.h cites the
// papers) and their CSV files; a validation that finds deadlocks and other
// errors before anything runs; and where to cut a model's layers into stages.
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
  // Of a B: it may run at the same time as the computation before it in the
  // rank's list, an F (torch's OVERLAP_F_B). Whoever runs the two one after the
  // other, as a CPU does, runs the F first.
  bool overlapped = false;

  bool operator==(const Action& other) const = default;
};

// "0F3": stage 0, forward, micro-batch 3; "1SEND_B0". The notation of
// torch.distributed.pipelining's CSV files. Does not tell what overlaps.
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
  enum Kind { kOutput, kGradient };  // a stage's output, its input's gradient

  // kNone if there is no stage `maker`, or no other stage that needs the value.
  size_t Number(Kind kind, int maker, int micro_batch) const;
  int MicroBatchOf(size_t value) const;
  bool IsGradient(size_t value) const { return value >= count() / 2; }

  const std::vector<int>& rank_of_stage_;
  int stages_;
  int micro_batches_;
};

// Calls visit(rank, i) for every actions[rank][i], each after those before it
// on its rank and after the action that makes what it needs from another stage,
// or, if the schedule has communication, that sends it. Returns, per rank, the
// number of actions that could be visited: all, unless ranks wait for each
// other in a cycle. Linear in the number of actions. The schedule's stages,
// micro-batches and ranks must be in range.
std::vector<size_t> DryRun(
    const Schedule& schedule,
    const std::function<void(int rank, size_t position)>& visit);

// DryRun with times: a computation starts once those before it on its rank are
// done and what it needs has arrived. Calls visit for every computation, and
// for each message that takes time as the send of its value. `schedule` has
// computation only; `costs` have passed CheckCosts.
void TimedDryRun(
    const Schedule& schedule, const SimulationCosts& costs,
    const std::function<void(int rank, const Action& action,
                             double start_seconds, double end_seconds)>& visit);

// The order in which one host thread starts the actions of all ranks: the rank
// of each action in turn. Every rank's list keeps its own order, and an action
// that needs what another stage makes comes after that is sent. The order is
// that of the start times if F, I and W took equally long, B twice as long, and
// messages no time, so that no device is left without work while the host
// issues that of another. Shorter than the number of actions if ranks wait for
// each other in a cycle. Linear except for the sort.
std::vector<int> IssueOrder(const Schedule& schedule);

// When the buffers of sends are free again. A rank sends a value only after the
// actions before it in its list, so whoever receives that value knows that what
// those actions needed has arrived. Waiting for those sends does not block, and
// nobody has to poll the backend: Gloo reports completion only to a wait.
// Nothing received later shows that a rank's last sends have arrived.
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
  // Linked lists in arrays, for speed: a planner makes thousands of schedules.
  // first_[received] is the head, next_[sent] the value after `sent`.
  std::vector<size_t> first_, next_;
};

struct ScheduleShape {
  int num_ranks = 1;          // p
  int num_micro_batches = 1;  // m
  int chunks = 0;  // v, stages per rank; 0: the schedule's own (2 for
                   // interleaved_1f1b, zbv and dualpipev, else 1)
};

// naive, gpipe, 1f1b, interleaved_1f1b, zero_bubble_h1, zero_bubble_h2, zbv,
// dualpipev, zero_bubble_auto.
std::vector<std::string> ScheduleNames();
// Whether `name` is one of them, and not a file's path. zero_bubble_auto may be
// followed by its limit of activations: "zero_bubble_auto:6" keeps 6
// micro-batches per rank at most; without a number as many as 1F1B, p.
bool IsScheduleName(absl::string_view name);
// The stages per rank of ScheduleShape::chunks = 0; 1 for the path of a file.
int DefaultChunks(absl::string_view name);

// Computation only. Every schedule takes every number of micro-batches, but for
// dualpipev, which needs 2p. Each stage does its F, its B or I, and its B or W
// in ascending order of micro-batch, so that gradients add up in the order of a
// single process. zero_bubble_auto plans with `costs`, of one stage per rank;
// without stages in them F, I and W count as equally long. InvalidArgument
// naming the known schedules, or saying what of the shape the schedule cannot
// do, or what is wrong with the costs.
absl::StatusOr<Schedule> MakeSchedule(absl::string_view name,
                                      const ScheduleShape& shape,
                                      const SimulationCosts& costs = {});

// MakeSchedule if IsScheduleName(name), else the CSV file of that path,
// validated and without its communication. The file must fit those of `shape`'s
// numbers that are not 0.
absl::StatusOr<Schedule> OpenSchedule(const std::string& name,
                                      const ScheduleShape& shape,
                                      const SimulationCosts& costs = {});

// The schedule of an evaluation: F of all micro-batches through all stages,
// with sends and receives. A stage computes as soon as it can, and a rank with
// several stages takes turns among them, so that micro-batches follow each
// other for any placement. All ranks' lists agree with one order of all actions
// and messages: even where every send waits for its receive, nothing deadlocks.
Schedule MakeForwardSchedule(std::vector<int> rank_of_stage, int num_ranks,
                             int num_micro_batches);

// Files have the format of torch.distributed.pipelining: one row per rank, one
// cell per action in the notation of ToString(Action), or per pair of them that
// overlaps: "(0F3;3B1)OVERLAP_F_B". Empty cells, which that library writes for
// idle time slots, mean nothing.
//
// `path` is the schedule's name and stands in messages. InvalidArgument names
// the file, row and column (from 1) of a cell that is no action, or of a stage
// that another rank has too. Does not validate: see Validate.
absl::StatusOr<Schedule> ParseScheduleCsv(const std::string& path,
                                          absl::string_view text);

absl::StatusOr<Schedule> ReadScheduleCsv(const std::string& path);

// Communication is left out: torch.distributed.pipelining and AddCommunication
// add their own.
std::string ToCsv(const Schedule& schedule);

// Replaces the file. The error names it.
absl::Status WriteScheduleCsv(const Schedule& schedule,
                              const std::string& path);

struct ScheduleFacts {
  // Per rank: the most micro-batches whose forward is done and whose weight
  // gradient is not, summed over the rank's stages, in units of one stage's
  // activations; divide by the stages per rank for whole micro-batches.
  std::vector<int> peak_activations;
};

// InvalidArgument that names the rank, its position in the list and the action:
// an action that is missing, doubled, of an unknown stage or micro-batch, on
// another rank than the stage's other actions, before what it needs on its own
// rank, overlapped with what it needs; or, for a deadlock, who waits for what
// in a cycle. Accepts schedules with and without communication.
absl::StatusOr<ScheduleFacts> Validate(const Schedule& schedule);

// The first layer of every stage but the first: {2, 5} cuts 8 layers into
// [0, 2), [2, 5), [5, 8).
using Cuts = std::vector<size_t>;

// Contiguous, none empty, with the least possible cost of the costliest stage;
// exact, by dynamic programming. Of equally good cuts the later one.
// InvalidArgument with both numbers for more stages than layers, or a cost that
// is negative or not finite.
absl::StatusOr<Cuts> BalanceLayers(absl::Span<const double> layer_costs,
                                   size_t num_stages);

// "2,5": for a model of `num_layers` into `num_stages`. InvalidArgument that
// names the cut: outside the model, not ascending, not a number, too few or too
// many.
absl::StatusOr<Cuts> ParseCuts(absl::string_view text, size_t num_layers,
                               size_t num_stages);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_SCHEDULE_H_
