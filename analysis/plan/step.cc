#include "analysis/plan/step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "analysis/plan/link_run.h"
#include "analysis/prediction/recordings.h"
#include "analysis/text/text_table.h"
#include "parallel/ddp/order/bucket_fill.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

constexpr double kNormal95 = 1.96;
constexpr double kNearlyFull = 0.95;
// of the step; below it, compute is the limit
constexpr double kLeastLimit = 0.05;

StageCosts CostsOf(const PassSeconds& seconds, double output_bytes) {
  StageCosts costs;
  costs.forward_seconds = seconds.Forward();
  costs.backward_seconds = seconds.Backward();
  costs.weight_grad_seconds = seconds.weight_grad;
  costs.input_grad_seconds = costs.backward_seconds - costs.weight_grad_seconds;
  costs.output_bytes = output_bytes;
  return costs;
}

int64_t GradientRanks(const Layout& layout) { return layout.dp * layout.cp; }

// Returns the number of ranks that divide the rows to be updated.
double ShardRanks(const Layout& layout) {
  return layout.zero > 0 ? static_cast<double>(layout.dp) : 1;
}

// Returns the interval of `value`, which is `low` and `high` at the ends of the
// interval of communication costs and has a relative error of `deviation`.
Interval IntervalOf(double value, double low, double high, double deviation) {
  const double own = kNormal95 * deviation * value;
  return {std::max(0.0, value - std::hypot(own, value - low)),
          value + std::hypot(own, high - value)};
}

// Returns the start times of the first stage's forwards.
std::vector<double> StartsOfMicroBatches(const Schedule& schedule,
                                         const Timeline& timeline) {
  std::vector<double> starts;
  for (const Span& span : timeline.ranks[schedule.rank_of_stage.front()]) {
    if (span.action.stage == 0 && span.action.kind == ActionKind::kForward)
      starts.push_back(span.start_seconds);
  }
  return starts;
}

std::string LimitOf(const Step& step, double memory_bytes) {
  const StepParts& parts = step.parts;
  const std::pair<const char*, double> others[] = {
      {"recompute", parts.recompute},
      {"bubble", parts.bubble},
      {"tp", parts.tp},
      {"cp", parts.cp},
      {"pp", parts.pp},
      {"dp", parts.dp},
      {"update", parts.update}};
  const auto* const most = std::max_element(
      std::begin(others), std::end(others),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  const double share = most->second / step.step_seconds;
  std::string limit = share < kLeastLimit
                          ? "compute"
                          : absl::StrCat(most->first, " ", PercentText(share));
  const double full = step.memory.sum() / memory_bytes;
  if (full > kNearlyFull)
    absl::StrAppend(&limit, ", memory ", PercentText(full));
  return limit;
}

}  // namespace

// Result of one simulation.
struct StepModel::Timing {
  double seconds = 0;
  double exposed_dp = 0;
  double update = 0;
  PassSeconds pass;    // of the rank with the most computation; one micro-batch
  int64_t period = 1;  // micro-batches after which the timeline repeats
};

absl::StatusOr<StepModel> StepModel::Create(Setting setting,
                                            int64_t longest_simulated) {
  RETURN_IF_ERROR(CheckModel(setting.model));
  RETURN_IF_ERROR(CheckNetwork(setting.cluster));
  return StepModel(std::move(setting), longest_simulated);
}

absl::StatusOr<const StepModel::Cut*> StepModel::CutOf(const Layout& layout) {
  const auto found = cuts_.find(layout.stages());
  if (found != cuts_.end()) return &found->second;
  ASSIGN_OR_RETURN(Cut cut, CutModel(setting_.model, layout.stages(),
                                     setting_.engine.equal_blocks));
  return &cuts_.emplace(layout.stages(), std::move(cut)).first->second;
}

absl::StatusOr<StepModel::Schedules*> StepModel::SchedulesOf(
    const Layout& layout) {
  const auto key = std::make_tuple(layout.schedule, layout.pp, layout.chunks,
                                   layout.micro_batches);
  const auto found = schedules_.find(key);
  if (found != schedules_.end()) return &found->second;
  // Only a few successive layouts share a schedule; all of them would exceed
  // memory.
  if (schedules_.size() > 8) schedules_.clear();
  Schedules schedules;
  ASSIGN_OR_RETURN(
      schedules.computation,
      MakeSchedule(layout.schedule, {static_cast<int>(layout.pp),
                                     static_cast<int>(layout.micro_batches),
                                     static_cast<int>(layout.chunks)}));
  return &schedules_.emplace(key, std::move(schedules)).first->second;
}

const LayerWork& StepModel::WorkFor(const Layout& layout) {
  const bool casts_once = CastsOnce(layout);
  const auto key = std::make_tuple(layout.tp, layout.cp, layout.micro_batch,
                                   static_cast<int>(layout.recompute),
                                   layout.sequence_parallel, layout.zero > 0,
                                   layout.is_data_parallel(),
                                   casts_once ? layout.micro_batches : 0);
  const auto found = works_.find(key);
  if (found != works_.end()) return found->second;
  return works_
      .emplace(key, WorkOf(setting_.model, layout, setting_.engine,
                           setting_.cluster, CostSide::kMiddle))
      .first->second;
}

absl::StatusOr<double> StepModel::LeastBytes(const Layout& layout) {
  ASSIGN_OR_RETURN(const Cut* cut, CutOf(layout));
  return LeastMemory(setting_.model, layout, setting_.engine, WorkFor(layout),
                     *cut);
}

absl::StatusOr<double> StepModel::LeastSeconds(const Layout& layout) {
  ASSIGN_OR_RETURN(const Cut* cut, CutOf(layout));
  const LayerWork& work = WorkFor(layout);
  const auto p = static_cast<size_t>(layout.pp);
  const auto m = static_cast<double>(layout.micro_batches);
  double before = 0, least = 0;
  for (size_t rank = 0; rank < p; ++rank) {
    double busy = 0;
    for (size_t chunk = 0; chunk * p < cut->size(); ++chunk) {
      const bool back = layout.schedule == "zbv" && chunk % 2 == 1;
      const size_t place = back ? p - 1 - rank : rank;
      const PassSeconds pass = work.Of((*cut)[chunk * p + place]).seconds;
      busy += pass.Forward() + pass.Backward();
    }
    least = std::max(least, before + m * busy);
    const PassSeconds pass = work.Of((*cut)[rank]).seconds;
    before += pass.Forward() + (layout.cuts_backward() ? 0 : pass.Backward());
  }
  if (layout.pp > 1) least /= setting_.cluster.slowdown_by_others;
  if (layout.is_data_parallel() || layout.cuts_backward()) return least;
  // Rank 0 starts first and ends last, with stage 0, followed by its gradients.
  const Stage& first = (*cut)[0];
  return least +
         UpdateSeconds(layout,
                       ParametersOf(setting_.model, layout, first, work)) +
         ReduceSeconds(layout, first, work, CostSide::kMiddle);
}

// With ZeRO, a reduce-scatter along dp and an all-reduce of the rank's own rows
// along cp.
double StepModel::GradientSeconds(const Layout& layout, double parameters,
                                  CostSide side) const {
  const Cluster& cluster = setting_.cluster;
  const double bytes = setting_.engine.reduced_bytes * parameters;
  if (layout.zero == 0) {
    return CollectiveSeconds(
        cluster, "all_reduce", bytes,
        LineAlong(cluster, GradientRanks(layout), layout.tp), side);
  }
  const Line replicas = LineAlong(cluster, layout.dp, layout.tp * layout.cp);
  return CollectiveSeconds(cluster, "reduce_scatter", bytes, replicas, side) +
         CollectiveSeconds(cluster, "all_reduce", bytes / ShardRanks(layout),
                           LineAlong(cluster, layout.cp, layout.tp), side);
}

double StepModel::ReduceSeconds(const Layout& layout, const Stage& stage,
                                const LayerWork& work, CostSide side) const {
  const Model& model = setting_.model;
  if (GradientRanks(layout) == 1) return 0;
  if (layout.zero == 0)
    return GradientSeconds(layout, ParametersOf(model, layout, stage, work),
                           side);
  double sum = 0;
  for (const UnitSeconds& unit : UnitSecondsOf(
           layout,
           UnitSectionsOf(model, layout, setting_.engine, {stage}, work), side))
    sum += unit.scatter;
  return sum;
}

std::vector<UnitSeconds> StepModel::UnitSecondsOf(const Layout& layout,
                                                  const UnitSections& units,
                                                  CostSide side) const {
  const Line line =
      LineAlong(setting_.cluster, layout.dp, layout.tp * layout.cp);
  std::vector<UnitSeconds> seconds;
  int64_t last = -1;  // blocks are equal
  for (const UnitSize& unit : units.layout.units) {
    if (std::exchange(last, unit.numbers) == unit.numbers) {
      seconds.push_back(seconds.back());
      continue;
    }
    const auto parameters = static_cast<double>(unit.numbers);
    const double bytes = setting_.engine.value_bytes * parameters;
    seconds.push_back({.gather = CollectiveSeconds(
                           setting_.cluster, "all_gather", bytes, line, side),
                       .scatter = GradientSeconds(layout, parameters, side)});
  }
  return seconds;
}

TimedUnits StepModel::TimedUnitsOf(const Layout& layout, const Stage& stage,
                                   const LayerWork& work, CostSide side) const {
  UnitSections units =
      UnitSectionsOf(setting_.model, layout, setting_.engine, {stage}, work);
  std::vector<UnitSeconds> seconds = UnitSecondsOf(layout, units, side);
  return TimedUnits(std::move(units), std::move(seconds), UnitOrderOf(layout),
                    setting_.cluster.speed_during_communication);
}

// Times one rank's model whose gradients are reduced along dp during backward.
StepModel::Timing StepModel::TimeDataParallel(const Layout& layout,
                                              const LayerWork& work,
                                              CostSide side) const {
  const Stage whole{true, true, true, setting_.model.blocks};
  const Work all = work.Of(whole);
  Timing timing;
  timing.pass = all.seconds;
  timing.update =
      UpdateSeconds(layout, ParametersOf(setting_.model, layout, whole, work));
  const double forward = all.seconds.Forward(),
               backward = all.seconds.Backward();
  const auto m = static_cast<double>(layout.micro_batches);
  if (layout.zero > 0) {
    TimedUnits run = TimedUnitsOf(layout, whole, work, side);
    run.RunMicroBatches(layout.micro_batches);
    timing.seconds = run.now() + timing.update;
    timing.exposed_dp = run.exposed();
    return timing;
  }
  LinkRun run(setting_.cluster.speed_during_communication);
  run.Compute(m * forward + (m - 1) * backward);
  BucketFill buckets;
  const double bytes = setting_.engine.reduced_bytes;
  const auto reduce = [&](int64_t bucket) {
    if (bucket == 0) return;
    run.Start(
        GradientSeconds(layout, static_cast<double>(bucket) / bytes, side));
  };
  // A layer's gradients become ready evenly.
  const auto arrive = [&](const Work& layer,
                          const std::vector<double>& tensors) {
    const double numbers = absl::c_accumulate(tensors, 0.0);
    for (size_t i = tensors.size(); i-- > 0;) {
      run.Compute(layer.seconds.Backward() * tensors[i] / numbers);
      reduce(buckets.Add(static_cast<int64_t>(bytes * tensors[i])));
    }
  };
  const auto tensors_of = [](const ParameterShapes& shapes) {
    std::vector<double> numbers;
    for (const std::vector<int64_t>& shape : shapes)
      numbers.push_back(static_cast<double>(SizeOf({shape}, 1).numbers));
    return numbers;
  };
  const Model& model = setting_.model;
  if (model.tied_head) {
    run.Compute(work.head.seconds.Backward());
  } else {
    arrive(work.head, tensors_of(work.shapes.head));
  }
  arrive(work.norm, tensors_of(work.shapes.norm));
  const std::vector<double> block = tensors_of(work.shapes.block);
  for (int64_t i = 0; i < model.blocks; ++i) arrive(work.block, block);
  arrive(work.embedding, tensors_of(work.shapes.embedding));
  reduce(buckets.Take());
  run.WaitForAll();
  timing.seconds = run.now() + timing.update;
  timing.exposed_dp = run.exposed();
  return timing;
}

// Returns each stage's costs for the simulator. `gathers`: exposed all-gather
// seconds per micro-batch with ZeRO 3, which are then part of the costs;
// otherwise of the first micro-batch.
SimulationCosts StepModel::CostsOfStages(const Layout& layout, const Cut& cut,
                                         const LayerWork& work, CostSide side,
                                         std::vector<double>& gathers) const {
  SimulationCosts costs;
  for (const Stage& stage : cut) {
    StageCosts& one = costs.stages.emplace_back(
        CostsOf(work.Of(stage).seconds, work.input_bytes));
    gathers.push_back(0);
    if (layout.zero == 0) continue;
    TimedUnits run = TimedUnitsOf(layout, stage, work, side);
    run.Forward(run.All());
    const double forward = run.exposed();
    gathers.back() = forward;
    if (layout.zero < 3) continue;
    run.Backward(run.All(), /*reduces=*/false);
    // A backward that recomputes the forward waits again.
    const bool again = RunsStagesAgain(layout, setting_.engine);
    const double backward = run.exposed() - (again ? 0 : forward);
    one.forward_seconds += forward;
    one.backward_seconds += backward;
    gathers.back() += backward;
  }
  return costs;
}

// A message between stages: the network's alpha + bytes * beta and, if the
// ranks along tp split it, an all-gather among them.
LinkCosts StepModel::LinkOf(const Layout& layout, double bytes,
                            CostSide side) const {
  const Cluster& cluster = setting_.cluster;
  const Line line =
      LineAlong(cluster, layout.pp, layout.dp * layout.cp * layout.tp);
  const bool splits = setting_.engine.splits_messages && layout.tp > 1 &&
                      !layout.sequence_parallel;
  const double sent = splits ? bytes / static_cast<double>(layout.tp) : bytes;
  const double seconds =
      CollectiveSeconds(cluster, "ping_pong", sent, line, side);
  LinkCosts link;
  // Measured small messages can take longer than large ones.
  link.alpha_seconds =
      std::min(seconds, CollectiveSeconds(cluster, "ping_pong", 1, line, side));
  link.beta_seconds_per_byte = (seconds - link.alpha_seconds) / bytes;
  if (splits) {
    link.alpha_seconds += CollectiveSeconds(
        cluster, "all_gather", bytes, LineAlong(cluster, layout.tp, 1), side);
  }
  return link;
}

// A stage computes while its messages are in flight: its inputs and outputs in
// forward, and their gradients in backward.
void StepModel::SlowDownByMessages(SimulationCosts& costs) const {
  const double lost = 1 - setting_.cluster.speed_during_communication;
  const size_t last = costs.stages.size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    StageCosts& stage = costs.stages[i];
    const double neighbours = (i > 0 ? 1 : 0) + (i < last ? 1 : 0);
    const double seconds =
        lost * neighbours *
        (costs.link.alpha_seconds +
         costs.link.beta_seconds_per_byte * costs.stages[0].output_bytes);
    stage.forward_seconds += seconds;
    stage.input_grad_seconds += seconds;
    stage.backward_seconds += seconds;
  }
}

// Returns the exchange of a tied weight with copies on the first and the last
// rank; zbv has both on the first. With ZeRO a rank exchanges only its own rows
// of the gradient.
double StepModel::TiedSeconds(const Layout& layout, const LayerWork& work,
                              CostSide side) const {
  const auto& [model, engine, cluster] = setting_;
  if (!model.tied_head || layout.pp == 1 || layout.schedule == "zbv") return 0;
  const Line line =
      LineAlong(cluster, layout.pp, layout.dp * layout.cp * layout.tp);
  const auto numbers =
      static_cast<double>(SizeOf(work.shapes.head, 1).numbers) /
      ShardRanks(layout);
  return CollectiveSeconds(cluster, "all_reduce",
                           engine.reduced_bytes * numbers,
                           {2, line.nodes() > 1 ? 1 : 2}, side);
}

double StepModel::UpdateSeconds(const Layout& layout, double parameters) const {
  return setting_.engine.update_bytes * parameters / ShardRanks(layout) /
         setting_.cluster.device.memory_bytes_per_second;
}

// All cores are busy while at least as many ranks compute as there are cores,
// so the total work takes as long as if all ranks computed all the time; but no
// rank is faster than with its own cores.
absl::StatusOr<Timeline> StepModel::SimulateOnSharedCores(
    const Schedule& schedule, SimulationCosts costs, double& faster) const {
  ASSIGN_OR_RETURN(Timeline timeline, Simulate(schedule, costs));
  const double most = setting_.cluster.slowdown_by_others;
  if (most == 1) return timeline;
  double busy = 0, end = 0;
  for (const std::vector<Span>& rank : timeline.ranks) {
    const Extent extent = ExtentOf(rank);
    busy += extent.busy_seconds();
    end = std::max(end, extent.end_seconds);
  }
  const auto ranks = static_cast<double>(timeline.ranks.size());
  faster = std::min(most, ranks * end / busy);
  for (StageCosts& stage : costs.stages) {
    stage.forward_seconds /= faster;
    stage.backward_seconds /= faster;
    stage.input_grad_seconds /= faster;
    stage.weight_grad_seconds /= faster;
  }
  return Simulate(schedule, costs);
}

absl::StatusOr<StepModel::Timing> StepModel::TimePipeline(const Layout& layout,
                                                          const LayerWork& work,
                                                          CostSide side,
                                                          bool with_link) {
  ASSIGN_OR_RETURN(const Cut* cut, CutOf(layout));
  ASSIGN_OR_RETURN(const Schedules* schedules, SchedulesOf(layout));
  const Schedule& schedule = schedules->computation;
  std::vector<double> gathers;
  SimulationCosts costs = CostsOfStages(layout, *cut, work, side, gathers);
  if (with_link && layout.pp > 1) {
    costs.link = LinkOf(layout, work.input_bytes, side);
    SlowDownByMessages(costs);
  }
  double faster = 1;
  ASSIGN_OR_RETURN(const Timeline timeline,
                   SimulateOnSharedCores(schedule, costs, faster));

  Timing timing;
  timing.period = FindPeriod(StartsOfMicroBatches(schedule, timeline));
  std::vector<std::vector<double>> reduce(layout.pp);
  std::vector<double> outside(layout.pp);
  double longest = -1;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    Work all;
    double parameters = 0, waits = 0;
    // The gradients of later stages are ready first.
    std::vector<int> stages = schedule.StagesOf(rank);
    std::reverse(stages.begin(), stages.end());
    for (const int stage : stages) {
      const Work one = work.Of((*cut)[stage]);
      all += one;
      parameters += ParametersOf(setting_.model, layout, (*cut)[stage], work);
      if (layout.zero == 3) {
        waits += static_cast<double>(layout.micro_batches) * gathers[stage];
      } else {
        outside[rank] += gathers[stage];
      }
      reduce[rank].push_back(ReduceSeconds(layout, (*cut)[stage], work, side));
    }
    outside[rank] += UpdateSeconds(layout, parameters);
    if (rank == 0 || rank + 1 == layout.pp)
      outside[rank] += TiedSeconds(layout, work, side);
    const double busy = all.seconds.Forward() + all.seconds.Backward();
    if (busy <= longest) continue;
    longest = busy;
    timing.pass = 1 / faster * all.seconds;
    timing.update = outside[rank];
    timing.exposed_dp = waits / faster;
  }
  // The update of a tied weight synchronizes the first and the last rank, so
  // every rank's step begins with the first forward.
  for (int rank = 0; rank < schedule.num_ranks(); ++rank)
    outside[rank] += timeline.ranks[rank].front().start_seconds;
  const StepTimes times = PipelineStep(timeline, 1, reduce, outside);
  timing.seconds = times.step_seconds;
  timing.exposed_dp += times.exposed_comm_seconds;
  return timing;
}

absl::StatusOr<StepModel::Timing> StepModel::TimeInFull(const Layout& layout,
                                                        CostSide side,
                                                        bool with_link) {
  const auto& [model, engine, cluster] = setting_;
  const LayerWork work = side == CostSide::kMiddle
                             ? WorkFor(layout)
                             : WorkOf(model, layout, engine, cluster, side);
  if (!layout.is_data_parallel())
    return TimePipeline(layout, work, side, with_link);
  return TimeDataParallel(layout, work, side);
}

absl::StatusOr<StepModel::Timing> StepModel::Time(const Layout& layout,
                                                  CostSide side,
                                                  bool with_link) {
  RETURN_IF_ERROR(CheckLayout(setting_.model, layout, setting_.engine));
  auto steps = Shorten(layout, longest_simulated_);
  // If weights are cast once, micro-batches are not simulated one by one.
  if (!steps.has_value() || CastsOnce(layout))
    return TimeInFull(layout, side, with_link);
  const int64_t first_more = steps->more.micro_batches;
  ASSIGN_OR_RETURN(Timing timing, TimeInFull(steps->more, side, with_link));
  steps = Shorten(layout, longest_simulated_, timing.period);
  if (steps->more.micro_batches != first_more) {
    ASSIGN_OR_RETURN(timing, TimeInFull(steps->more, side, with_link));
  }
  ASSIGN_OR_RETURN(const Timing fewer,
                   TimeInFull(steps->fewer, side, with_link));
  timing.seconds = steps->Extrapolate(fewer.seconds, timing.seconds);
  timing.exposed_dp = steps->Extrapolate(fewer.exposed_dp, timing.exposed_dp);
  return timing;
}

absl::StatusOr<std::vector<Memory>> StepModel::MemoryInFull(
    const Layout& layout, bool with_messages) {
  const auto& [model, engine, cluster] = setting_;
  ASSIGN_OR_RETURN(const Cut* cut, CutOf(layout));
  ASSIGN_OR_RETURN(Schedules * schedules, SchedulesOf(layout));
  if (with_messages && !schedules->complete.has_value()) {
    ASSIGN_OR_RETURN(schedules->complete,
                     AddCommunication(schedules->computation));
  }
  return RankMemory(
      model, layout, engine, WorkFor(layout), *cut,
      with_messages ? *schedules->complete : schedules->computation);
}

absl::StatusOr<Memory> StepModel::FullestRank(const Layout& layout,
                                              bool with_messages) {
  RETURN_IF_ERROR(CheckLayout(setting_.model, layout, setting_.engine));
  const auto steps = Shorten(layout, longest_simulated_);
  ASSIGN_OR_RETURN(
      std::vector<Memory> ranks,
      MemoryInFull(steps.has_value() ? steps->more : layout, with_messages));
  if (steps.has_value()) {
    ASSIGN_OR_RETURN(const std::vector<Memory> fewer,
                     MemoryInFull(steps->fewer, with_messages));
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      double& bytes = ranks[rank].activations;
      bytes = steps->Extrapolate(fewer[rank].activations, bytes);
    }
  }
  return *absl::c_max_element(ranks, [](const Memory& a, const Memory& b) {
    return a.sum() < b.sum();
  });
}

absl::StatusOr<Memory> StepModel::WithoutMessages(const Layout& layout) {
  return FullestRank(layout, /*with_messages=*/false);
}

absl::StatusOr<Step> StepModel::StepOf(const Layout& layout,
                                       const Timing& timing) {
  const auto& [model, engine, cluster] = setting_;
  Step step;
  step.layout = layout;
  ASSIGN_OR_RETURN(step.memory, FullestRank(layout, /*with_messages=*/true));
  step.peak_bytes = step.memory.sum();
  step.step_seconds = timing.seconds;
  step.examples_per_second =
      static_cast<double>(layout.global_batch()) / step.step_seconds;
  step.unit = {.example = "sequence", .tokens_per_example = model.sequence};
  step.mfu = 3 * model.ForwardFlops() * step.examples_per_second /
             static_cast<double>(layout.ranks()) / cluster.device.peak_flops;
  return step;
}

absl::StatusOr<Step> StepModel::Quick(const Layout& layout) {
  ASSIGN_OR_RETURN(const Timing timing,
                   Time(layout, CostSide::kMiddle, /*with_link=*/true));
  return StepOf(layout, timing);
}

absl::StatusOr<StepParts> StepModel::PartsOf(const Layout& layout,
                                             const Timing& timing,
                                             CostSide side) {
  ASSIGN_OR_RETURN(const Timing without,
                   Time(layout, side, /*with_link=*/false));
  const auto m = static_cast<double>(layout.micro_batches);
  const PassSeconds pass = m * timing.pass;
  StepParts parts;
  parts.compute = pass.forward + pass.input_grad + pass.weight_grad;
  parts.recompute = pass.recompute;
  parts.tp = pass.tp_forward + pass.tp_backward;
  parts.cp = pass.cp_forward + pass.cp_backward;
  parts.dp = timing.exposed_dp;
  parts.update = timing.update;
  parts.pp = std::max(0.0, timing.seconds - without.seconds);
  parts.bubble = std::max(0.0, timing.seconds - parts.compute -
                                   parts.recompute - parts.tp - parts.cp -
                                   parts.dp - parts.update - parts.pp);
  return parts;
}

absl::StatusOr<Step> StepModel::PredictInDetail(const Layout& layout) {
  struct End {
    double seconds;
    StepParts parts;
  };
  const auto at = [&](CostSide side) -> absl::StatusOr<End> {
    ASSIGN_OR_RETURN(const Timing timing,
                     Time(layout, side, /*with_link=*/true));
    ASSIGN_OR_RETURN(const StepParts parts, PartsOf(layout, timing, side));
    return End{timing.seconds, parts};
  };
  ASSIGN_OR_RETURN(const Timing timing,
                   Time(layout, CostSide::kMiddle, /*with_link=*/true));
  ASSIGN_OR_RETURN(Step step, StepOf(layout, timing));
  ASSIGN_OR_RETURN(step.parts, PartsOf(layout, timing, CostSide::kMiddle));
  ASSIGN_OR_RETURN(const End low, at(CostSide::kLow));
  ASSIGN_OR_RETURN(const End high, at(CostSide::kHigh));
  const double deviation = setting_.cluster.deviation;
  const auto interval = [&](double StepParts::*part) {
    return IntervalOf(step.parts.*part, low.parts.*part, high.parts.*part,
                      deviation);
  };
  const StepParts& parts = step.parts;
  step.exposed_comm_seconds = parts.tp + parts.cp + parts.pp + parts.dp;
  step.bubble_seconds = parts.bubble;
  step.step_interval =
      IntervalOf(step.step_seconds, low.seconds, high.seconds, deviation);
  const auto over_interval = [&step](double rate) {
    return Interval{rate * step.step_seconds / step.step_interval.high,
                    rate * step.step_seconds / step.step_interval.low};
  };
  step.examples_interval = over_interval(step.examples_per_second);
  step.mfu_interval = over_interval(step.mfu);
  step.exposed = {interval(&StepParts::tp), interval(&StepParts::cp),
                  interval(&StepParts::pp), interval(&StepParts::dp)};
  step.limit = LimitOf(step, setting_.cluster.device.memory_bytes);
  return step;
}

}  // namespace rankwise::plan
