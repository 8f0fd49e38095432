// The schedules of a pipeline's steps, and the costs used to plan them.
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "third_party/absl/status_macros.h"
#include "trainers/stages/pipeline_plan.h"

namespace rankwise {
namespace {

double MessageSeconds(const SimulationCosts& costs, size_t stage) {
  return costs.link.alpha_seconds +
         costs.stages[stage].output_bytes * costs.link.beta_seconds_per_byte;
}

// Returns "F 1.2, I 1.1, W 0.8 ms, messages 0.1 ms", the means over all stages.
std::string Describe(const SimulationCosts& costs) {
  double forward = 0, input_grad = 0, weight_grad = 0, message = 0;
  const double to_ms = 1e3 / static_cast<double>(costs.stages.size());
  for (size_t stage = 0; stage < costs.stages.size(); ++stage) {
    forward += costs.stages[stage].forward_seconds * to_ms;
    input_grad += costs.stages[stage].input_grad_seconds * to_ms;
    weight_grad += costs.stages[stage].weight_grad_seconds * to_ms;
    message += MessageSeconds(costs, stage) * to_ms;
  }
  return absl::StrFormat("F %.2f, I %.2f, W %.2f ms, messages %.2f ms", forward,
                         input_grad, weight_grad, message);
}

absl::StatusOr<Bubbles> BubblesOf(const Schedule& schedule,
                                  const SimulationCosts& costs) {
  ASSIGN_OR_RETURN(const Timeline timeline, Simulate(schedule, costs));
  return MeasureBubbles(timeline);
}

}  // namespace

SimulationCosts PipelinePlan::CostsOf(
    absl::Span<const double> forward_seconds,
    absl::Span<const double> backward_seconds) const {
  SimulationCosts costs;
  for (const LayerRange& stage : stages_) {
    StageCosts& sums = costs.stages.emplace_back();
    sums.forward_seconds = sums.backward_seconds = 0;
    for (size_t layer = stage.begin; layer < stage.end; ++layer) {
      sums.forward_seconds += forward_seconds[layer];
      sums.backward_seconds += backward_seconds[layer];
    }
    sums.input_grad_seconds = sums.weight_grad_seconds =
        sums.backward_seconds / 2;
  }
  return costs;
}

absl::StatusOr<Schedule> PipelinePlan::MakeFull(
    const SimulationCosts& costs) const {
  return OpenSchedule(
      config_.schedule,
      {.num_ranks = num_ranks(),
       .num_micro_batches = static_cast<int>(config_.micro_batches),
       .chunks = config_.chunks},
      costs);
}

absl::StatusOr<const Schedule*> PipelinePlan::ScheduleFor(
    size_t micro_batches) {
  const auto found = schedules_.find(micro_batches);
  if (found != schedules_.end()) return &found->second;
  ASSIGN_OR_RETURN(Schedule complete,
                   AddCommunication(FirstMicroBatches(
                       full_, static_cast<int>(micro_batches))));
  return &schedules_.emplace(micro_batches, std::move(complete)).first->second;
}

bool PipelinePlan::is_planned() const {
  return absl::StartsWith(config_.schedule, "zero_bubble_auto");
}

absl::StatusOr<std::string> PipelinePlan::Replan(int64_t step,
                                                 const SimulationCosts& costs) {
  ASSIGN_OR_RETURN(Schedule planned, MakeFull(costs));
  ASSIGN_OR_RETURN(const Bubbles before, BubblesOf(full_, costs));
  ASSIGN_OR_RETURN(const Bubbles after, BubblesOf(planned, costs));
  costs_ = costs;
  std::string line = absl::StrFormat(
      "%s: planned again after step %d from measured times (%s): predicted "
      "bubble %.1f %%",
      config_.schedule, step, Describe(costs), 100 * before.wall);
  if (after.wall_seconds < before.wall_seconds) {
    full_ = std::move(planned);
    replaced_ = std::exchange(schedules_, {});
    return line + absl::StrFormat(" -> %.1f %%", 100 * after.wall);
  }
  return line + ", no other plan is faster";
}

std::map<std::string, double> PipelinePlan::PlannedSeconds(int stage) const {
  if (!is_planned() || costs_.stages.empty()) return {};
  const size_t index = static_cast<size_t>(stage);
  const StageCosts& costs = costs_.stages[index];
  std::map<std::string, double> seconds = {{"F", costs.forward_seconds},
                                           {"I", costs.input_grad_seconds},
                                           {"W", costs.weight_grad_seconds}};
  if (index + 1 < costs_.stages.size())
    seconds["message"] = MessageSeconds(costs_, index);
  return seconds;
}

}  // namespace rankwise
