#include "parallel/pipeline/communication.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/timeline.h"

namespace rankwise {
namespace {

// A value on its way to another rank.
struct Message {
  size_t value;
  double sent_seconds;
  size_t position;  // of the action that makes it, in its rank's list
};

// A communication action that goes behind the first `behind` computations of
// its rank.
struct Insertion {
  size_t behind;
  Action action;
};

// All messages in the order in which they would be sent if every F, I and W
// took as long, and B twice as long. Any order of this kind, in which each
// message comes after those that had to be there before it was made, leads to
// lists that cannot deadlock; this one is near the order in real time.
std::vector<Message> MessagesInOrder(const Schedule& schedule,
                                     const Timeline& timeline) {
  const Values values(schedule);
  std::vector<Message> messages;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (size_t i = 0; i < timeline.ranks[rank].size(); ++i) {
      const Span& span = timeline.ranks[rank][i];
      const size_t value = values.MadeBy(span.action);
      if (value != Values::kNone &&
          schedule.rank_of_stage[values.UserOf(value)] != rank)
        messages.push_back({value, span.end_seconds, i});
    }
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message& a, const Message& b) {
                     return a.sent_seconds < b.sent_seconds;
                   });
  return messages;
}

// A receive goes right behind what its rank last issued with the same peer: no
// earlier, or the two ranks would issue in different orders.
std::vector<std::vector<Insertion>> InsertionsOf(
    const Schedule& schedule, const std::vector<Message>& messages) {
  const Values values(schedule);
  std::vector<std::vector<Insertion>> insertions(schedule.actions.size());
  // [rank, peer]: behind how many computations of the rank they last met.
  std::map<std::pair<int, int>, size_t> last_met;
  for (const Message& message : messages) {
    const int from = schedule.rank_of_stage[values.MakerOf(message.value)];
    const int to = schedule.rank_of_stage[values.UserOf(message.value)];
    const size_t behind = message.position + 1;
    insertions[from].push_back({behind, values.SendOf(message.value)});
    last_met[{from, to}] = behind;
    insertions[to].push_back(
        {last_met[{to, from}], values.ReceiveOf(message.value)});
  }
  for (std::vector<Insertion>& of_rank : insertions) {
    std::stable_sort(of_rank.begin(), of_rank.end(),
                     [](const Insertion& a, const Insertion& b) {
                       return a.behind < b.behind;
                     });
  }
  return insertions;
}

std::vector<Action> Merge(const std::vector<Action>& compute,
                          const std::vector<Insertion>& insertions) {
  std::vector<Action> merged;
  merged.reserve(compute.size() + insertions.size());
  auto next = insertions.begin();
  for (size_t done = 0; done <= compute.size(); ++done) {
    for (; next != insertions.end() && next->behind == done; ++next)
      merged.push_back(next->action);
    if (done < compute.size()) merged.push_back(compute[done]);
  }
  return merged;
}

}  // namespace

absl::StatusOr<Schedule> AddCommunication(const Schedule& compute) {
  Schedule schedule = ComputationOf(compute);
  const absl::StatusOr<Timeline> timeline =
      Simulate(schedule, {.stages = {StageCosts{}}, .link = {}});
  if (!timeline.ok()) return timeline.status();
  const std::vector<std::vector<Insertion>> insertions =
      InsertionsOf(schedule, MessagesInOrder(schedule, *timeline));
  for (size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    schedule.actions[rank] = Merge(schedule.actions[rank], insertions[rank]);
  }
  return schedule;
}

}  // namespace rankwise
