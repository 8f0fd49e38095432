#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "parallel/pipeline/schedule/builders.h"

namespace rankwise {
namespace {

// A rank's use of a gap that is shorter than a W.
enum class ShortGap { kWait, kFill, kFillIfIdleMost };

// One choice for each of the competing rules.
struct Rules {
  ShortGap short_gap = ShortGap::kWait;
  // Delay an F that would delay a gradient with a known arrival time.
  bool forward_waits = false;
  // Free memory for an F, by a W, before running an available I.
  bool forward_first = false;
  // Store no more F without their I than 1F1B does: p - rank.
  bool as_deep_as_1f1b = false;
};

constexpr double kLater = std::numeric_limits<double>::infinity();
constexpr double kUnknown = -1;
// Smaller differences are rounding: costs are summed in different orders.
constexpr double kRoundingSeconds = 1e-9;

// Plans all ranks side by side in time order. A rank decides on its next action
// whenever it becomes free or an arrival becomes known.
class Planner {
 public:
  Planner(int p, int m, int max_activations, const SimulationCosts& costs,
          const Rules& rules)
      : p_(p),
        m_(m),
        max_activations_(max_activations),
        costs_(costs),
        rules_(rules),
        schedule_(EmptySchedule(p, m, 1)),
        ranks_(static_cast<size_t>(p)) {
    for (Rank& rank : ranks_) {
      rank.input_at.assign(static_cast<size_t>(m), kUnknown);
      rank.gradient_at.assign(static_cast<size_t>(m), kUnknown);
    }
    ranks_[0].input_at.assign(static_cast<size_t>(m), 0);
  }

  Schedule Plan() {
    wake_.push({0, 0});
    while (!wake_.empty()) {
      const auto [now, rank] = wake_.top();
      wake_.pop();
      if (ranks_[rank].free_at <= now) Decide(rank, now);
    }
    return std::move(schedule_);
  }

 private:
  struct Rank {
    int forwards = 0, input_grads = 0, weight_grads = 0;  // completed
    bool forward_turn = false;  // whether the last of F and I was an I
    double free_at = 0, idle_seconds = 0;
    // Arrival times of the inputs of F and the gradients of I, by micro-batch.
    std::vector<double> input_at, gradient_at;
  };

  const StageCosts& CostsOf(int rank) const {
    return costs_.stages[costs_.stages.size() == 1 ? 0 : rank];
  }
  // Returns the duration of a message between `rank` and the next.
  double MessageSeconds(int rank) const {
    return costs_.link.alpha_seconds +
           CostsOf(rank).output_bytes * costs_.link.beta_seconds_per_byte;
  }

  // Return the earliest arrival of the next F's input, or of the next I's
  // gradient; kLater if there is no such F or I yet.
  double NextInput(int number, double now) const {
    const Rank& rank = ranks_[number];
    if (rank.forwards == m_) return kLater;
    const double at = rank.input_at[rank.forwards];
    if (at != kUnknown) return at;
    return std::max(now, ranks_[number - 1].free_at) +
           CostsOf(number - 1).forward_seconds + MessageSeconds(number - 1);
  }
  double NextGradient(int number, double now) const {
    const Rank& rank = ranks_[number];
    if (rank.input_grads == rank.forwards) return kLater;
    const double at = rank.gradient_at[rank.input_grads];
    if (at != kUnknown) return at;
    return std::max(now, ranks_[number + 1].free_at) +
           CostsOf(number + 1).input_grad_seconds + MessageSeconds(number);
  }

  void Decide(int number, double now);
  bool FillsGap(int number, double seconds) const;
  void Start(int number, ActionKind kind, double now);
  void Send(ActionKind kind, int from, int to, int micro_batch, double now);

  const int p_, m_, max_activations_;
  const SimulationCosts& costs_;
  const Rules rules_;
  Schedule schedule_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, double> link_free_seconds_;
  using Wake = std::pair<double, int>;  // time, rank
  std::priority_queue<Wake, std::vector<Wake>, std::greater<Wake>> wake_;
};

void Planner::Decide(int number, double now) {
  const Rank& rank = ranks_[number];
  const double gradient = NextGradient(number, now);
  const bool shallow =
      !rules_.as_deep_as_1f1b || rank.forwards - rank.input_grads < p_ - number;
  const double input = shallow ? NextInput(number, now) : kLater;
  const bool has_room = rank.forwards - rank.weight_grads < max_activations_;
  const bool has_weight_grad = rank.weight_grads < rank.input_grads;
  const bool input_here = input <= now + kRoundingSeconds;
  const bool gradient_here = gradient <= now + kRoundingSeconds;
  const bool may_free =
      !gradient_here || (rank.forward_turn && rules_.forward_first);
  if (input_here && !has_room && has_weight_grad && may_free)
    return Start(number, ActionKind::kWeightGrad, now);
  if (input_here && has_room && (rank.forward_turn || !gradient_here)) {
    const bool delays =
        !rank.forward_turn && gradient != kLater &&
        rank.gradient_at[rank.input_grads] != kUnknown &&
        gradient < now + CostsOf(number).forward_seconds - kRoundingSeconds;
    if (!delays || !rules_.forward_waits)
      return Start(number, ActionKind::kForward, now);
  }
  if (gradient_here) return Start(number, ActionKind::kInputGrad, now);
  const double gap = std::min(gradient, has_room ? input : kLater) - now;
  if (has_weight_grad && FillsGap(number, gap))
    Start(number, ActionKind::kWeightGrad, now);
}

bool Planner::FillsGap(int number, double seconds) const {
  if (seconds >= CostsOf(number).weight_grad_seconds - kRoundingSeconds)
    return true;
  if (rules_.short_gap != ShortGap::kFillIfIdleMost)
    return rules_.short_gap == ShortGap::kFill;
  double most = 0;
  for (const Rank& rank : ranks_) most = std::max(most, rank.idle_seconds);
  return ranks_[number].idle_seconds + seconds > most + kRoundingSeconds;
}

void Planner::Start(int number, ActionKind kind, double now) {
  Rank& rank = ranks_[number];
  const StageCosts& costs = CostsOf(number);
  std::vector<Action>& actions = schedule_.actions[number];
  if (!actions.empty()) rank.idle_seconds += now - rank.free_at;
  int micro_batch = 0;
  if (kind == ActionKind::kForward) {
    micro_batch = rank.forwards++;
    rank.free_at = now + costs.forward_seconds;
    rank.forward_turn = false;
    if (number == p_ - 1)
      rank.gradient_at[micro_batch] = rank.free_at;
    else
      Send(kind, number, number + 1, micro_batch, now);
  } else if (kind == ActionKind::kInputGrad) {
    micro_batch = rank.input_grads++;
    rank.free_at = now + costs.input_grad_seconds;
    rank.forward_turn = true;
    if (number > 0) Send(kind, number, number - 1, micro_batch, now);
  } else {
    micro_batch = rank.weight_grads++;
    rank.free_at = now + costs.weight_grad_seconds;
  }
  actions.push_back({number, micro_batch, kind});
  wake_.push({rank.free_at, number});
}

// Sends the value that `from` makes until it is free again.
void Planner::Send(ActionKind kind, int from, int to, int micro_batch,
                   double now) {
  double& link_free = link_free_seconds_[{from, to}];
  link_free = std::max(link_free, ranks_[from].free_at) +
              MessageSeconds(std::min(from, to));
  Rank& user = ranks_[to];
  (kind == ActionKind::kForward ? user.input_at
                                : user.gradient_at)[micro_batch] = link_free;
  wake_.push({now, to});
  wake_.push({link_free, to});
}

double EndSeconds(const Schedule& schedule, const SimulationCosts& costs) {
  double last = 0;
  TimedDryRun(schedule, costs,
              [&](int, const Action&, double, double end_seconds) {
                last = std::max(last, end_seconds);
              });
  return last;
}

}  // namespace

Schedule ZeroBubbleAuto(int p, int m, int max_activations,
                        const SimulationCosts& costs) {
  Schedule best;
  double least = kLater;
  const auto consider = [&](Schedule candidate) {
    const double seconds = EndSeconds(candidate, costs);
    if (seconds >= least) return;
    least = seconds;
    best = std::move(candidate);
  };
  if (max_activations >= std::min(p, m)) consider(ZeroBubbleH1(p, m, 1));
  if (max_activations >= std::min(2 * p - 1, m))
    consider(ZeroBubbleH2(p, m, 1));
  for (const ShortGap short_gap :
       {ShortGap::kWait, ShortGap::kFill, ShortGap::kFillIfIdleMost}) {
    for (int bits = 0; bits < 8; ++bits) {
      const Rules rules = {short_gap, (bits & 1) != 0, (bits & 2) != 0,
                           (bits & 4) != 0};
      consider(Planner(p, m, max_activations, costs, rules).Plan());
    }
  }
  return best;
}

}  // namespace rankwise
