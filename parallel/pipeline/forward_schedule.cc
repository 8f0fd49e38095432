#include "parallel/pipeline/forward_schedule.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace rankwise {
namespace {

// An action and its place in the one order.
struct Event {
  int time = 0;
  int stage = 0;  // that computes or sends
  Action action;

  bool operator<(const Event& other) const {
    return std::tie(time, other.stage) < std::tie(other.time, stage);
  }
};

}  // namespace

Schedule MakeForwardSchedule(std::vector<int> rank_of_stage, int num_ranks,
                             int num_micro_batches) {
  Schedule schedule;
  schedule.name = "forward";
  schedule.num_micro_batches = num_micro_batches;
  const int num_stages = static_cast<int>(rank_of_stage.size());
  const int chunks = (num_stages + num_ranks - 1) / num_ranks;
  std::vector<std::vector<Event>> events(num_ranks);
  for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    for (int stage = 0; stage < num_stages; ++stage) {
      // A rank has time for `chunks` stages between two micro-batches. What a
      // stage makes at an even time travels at the odd one after it.
      const int time = 2 * (micro_batch * chunks + stage);
      const int rank = rank_of_stage[stage];
      events[rank].push_back(
          {time, stage, {stage, micro_batch, ActionKind::kForward}});
      if (stage + 1 == num_stages || rank_of_stage[stage + 1] == rank) continue;
      events[rank].push_back(
          {time + 1, stage, {stage, micro_batch, ActionKind::kSendForward}});
      events[rank_of_stage[stage + 1]].push_back(
          {time + 1,
           stage,
           {stage + 1, micro_batch, ActionKind::kRecvForward}});
    }
  }
  for (std::vector<Event>& list : events) {
    std::sort(list.begin(), list.end());
    schedule.actions.emplace_back();
    for (const Event& event : list) {
      schedule.actions.back().push_back(event.action);
    }
  }
  schedule.rank_of_stage = std::move(rank_of_stage);
  return schedule;
}

}  // namespace rankwise
