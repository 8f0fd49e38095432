#include "analysis/plan/score.h"
#include "analysis/report/report.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

json LayoutData(const plan::ScoredLayout& scored) {
  return {{"model", scored.model},
          {"name", scored.Name()},
          {"ranks", scored.layout.ranks()},
          {"hosts", scored.hosts},
          {"planned_seconds", scored.step.seconds},
          {"interval", IntervalData(scored.step.interval)},
          {"measured_seconds", scored.measured_seconds},
          {"error", scored.Error()},
          {"covered", scored.IsCovered()},
          {"planned_bytes", scored.step.memory.sum()},
          {"measured_bytes", scored.measured_bytes}};  // 0: not known
}

json ChoiceData(const plan::Regret& regret) {
  return {{"model", regret.choice.model},
          {"ranks", regret.choice.layout.ranks()},
          {"hosts", regret.choice.hosts},
          {"global_batch", regret.choice.layout.global_batch()},
          {"layouts", regret.layouts},
          {"choice", regret.choice.Name()},
          {"choice_seconds", regret.choice.measured_seconds},
          {"fastest", regret.best.Name()},
          {"fastest_seconds", regret.best.measured_seconds},
          {"regret", regret.Share()}};
}

}  // namespace

json PlanScoreData(const Answer& answer) {
  if (!answer.plan_score.has_value()) return nullptr;
  json layouts = json::array(), choices = json::array();
  for (const plan::ScoredLayout& scored : answer.plan_score->layouts)
    layouts.push_back(LayoutData(scored));
  for (const plan::Regret& regret : answer.plan_score->regrets)
    choices.push_back(ChoiceData(regret));
  return {{"summary", plan::PlanScoreSummary(*answer.plan_score)},
          {"layouts", layouts},
          {"choices", choices}};
}

}  // namespace rankwise
