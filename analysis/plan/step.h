// The step of one layout: the engine's schedule, simulated with the durations
// of its stages and messages; ZeRO's units and their prefetching; the buckets
// of replicas.
#ifndef RANKWISE_ANALYSIS_PLAN_STEP_H_
#define RANKWISE_ANALYSIS_PLAN_STEP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/plan/cluster.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/long_step.h"
#include "analysis/plan/memory.h"
#include "analysis/plan/model.h"
#include "analysis/plan/units.h"
#include "analysis/plan/work.h"
#include "analysis/prediction/prediction.h"
#include "analysis/stats/statistics.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise::plan {

struct Setting {
  Model model;
  Engine engine;
  Cluster cluster;
};

// Parts of the step of the rank along pp with the most computation; they sum to
// the step.
struct StepParts {
  double compute = 0;
  double recompute = 0;
  double update = 0;                      // the optimizer, and its all-gathers
  double tp = 0, cp = 0, pp = 0, dp = 0;  // exposed communication
  double bubble = 0;
};

// Ranges of StepParts' exposed communication: each part is assumed to have the
// step's relative error, in addition to that of its communication costs.
struct ExposedIntervals {
  Interval tp = {}, cp = {}, pp = {}, dp = {};
};

// `step_interval` would contain 95 % of steps if the errors of the device's
// speed and of the communication costs were independent, and costs grew as
// assumed.
struct Step : Prediction {
  StepParts parts = {};
  ExposedIntervals exposed = {};
  Memory memory = {};  // of the fullest rank
  // model FLOPs, without recomputation, over the devices' peak
  double mfu = 0;
  // computed from `step_interval`; the upper end is infinite if that reaches 0
  Interval mfu_interval = {};
  // The largest part other than compute, or memory if nearly full: "bubble (12
  // %)", "memory (97 %)", "compute".
  std::string limit = {};
};

// Predicts steps. Caches partitions and schedules. Not thread-safe.
class StepModel : public Predictor {
 public:
  // Fails if CheckModel or CheckNetwork does. Steps with more micro-batches
  // than `longest_simulated` are extrapolated (long_step.h).
  static absl::StatusOr<StepModel> Create(
      Setting setting, int64_t longest_simulated = kLongestSimulatedStep);

  const Setting& setting() const { return setting_; }
  void set_deviation(double deviation) {
    setting_.cluster.deviation = deviation;
  }

  // Returns a lower bound over all schedules: every rank processes its
  // micro-batches between the first forward that can reach it and the last
  // gradient that can leave it.
  absl::StatusOr<double> LeastSeconds(const Layout& layout);
  // Returns the largest LeastMemory of a rank.
  absl::StatusOr<double> LeastBytes(const Layout& layout);
  // Returns the fullest rank's memory without the pipeline's messages: at most
  // Step::memory, and faster to compute. This and the next two fail if
  // CheckLayout or MakeSchedule does.
  absl::StatusOr<Memory> WithoutMessages(const Layout& layout);
  // Predicts the step without parts and intervals.
  absl::StatusOr<Step> Quick(const Layout& layout);
  // Predicts the complete Step.
  absl::StatusOr<Step> PredictInDetail(const Layout& layout);
  absl::StatusOr<Prediction> Predict(const Layout& layout) override {
    return PredictInDetail(layout);
  }

 private:
  using Cut = std::vector<Stage>;
  struct Timing;
  struct Schedules {
    Schedule computation;
    std::optional<Schedule> complete;  // with communication, once needed
  };

  StepModel(Setting setting, int64_t longest_simulated)
      : setting_(std::move(setting)), longest_simulated_(longest_simulated) {}

  absl::StatusOr<const Cut*> CutOf(const Layout& layout);
  absl::StatusOr<Schedules*> SchedulesOf(const Layout& layout);
  const LayerWork& WorkFor(const Layout& layout);
  absl::StatusOr<Timing> Time(const Layout& layout, CostSide side,
                              bool with_link);
  // Simulates all micro-batches.
  absl::StatusOr<Timing> TimeInFull(const Layout& layout, CostSide side,
                                    bool with_link);
  // Returns the memory of each rank along pp.
  absl::StatusOr<std::vector<Memory>> MemoryInFull(const Layout& layout,
                                                   bool with_messages);
  absl::StatusOr<Memory> FullestRank(const Layout& layout, bool with_messages);
  // Fills in all but parts and intervals.
  absl::StatusOr<Step> StepOf(const Layout& layout, const Timing& timing);
  absl::StatusOr<StepParts> PartsOf(const Layout& layout, const Timing& timing,
                                    CostSide side);
  Timing TimeDataParallel(const Layout& layout, const LayerWork& work,
                          CostSide side) const;
  absl::StatusOr<Timing> TimePipeline(const Layout& layout,
                                      const LayerWork& work, CostSide side,
                                      bool with_link);
  SimulationCosts CostsOfStages(const Layout& layout, const Cut& cut,
                                const LayerWork& work, CostSide side,
                                std::vector<double>& gathers) const;
  LinkCosts LinkOf(const Layout& layout, double bytes, CostSide side) const;
  // Simulates ranks that share cores: computation is faster than `device`
  // states while ranks of the pipeline wait.
  absl::StatusOr<Timeline> SimulateOnSharedCores(const Schedule& schedule,
                                                 SimulationCosts costs,
                                                 double& faster) const;
  // Adds the slowdown by messages to each stage's computation.
  void SlowDownByMessages(SimulationCosts& costs) const;
  double TiedSeconds(const Layout& layout, const LayerWork& work,
                     CostSide side) const;
  double UpdateSeconds(const Layout& layout, double parameters) const;
  double GradientSeconds(const Layout& layout, double parameters,
                         CostSide side) const;
  // Reduces a stage's gradients in one call or, with ZeRO, unit by unit.
  double ReduceSeconds(const Layout& layout, const Stage& stage,
                       const LayerWork& work, CostSide side) const;
  std::vector<UnitSeconds> UnitSecondsOf(const Layout& layout,
                                         const UnitSections& units,
                                         CostSide side) const;
  TimedUnits TimedUnitsOf(const Layout& layout, const Stage& stage,
                          const LayerWork& work, CostSide side) const;

  Setting setting_;
  int64_t longest_simulated_;
  std::map<int64_t, Cut> cuts_;  // by number of stages
  std::map<std::tuple<std::string, int64_t, int64_t, int64_t>, Schedules>
      schedules_;
  // By the inputs of WorkOf from a layout: tp, cp, micro-batch, recompute,
  // sequence parallel, ZeRO, data-parallel, and micro-batches if weights are
  // cast once for all of them.
  std::map<
      std::tuple<int64_t, int64_t, int64_t, int, bool, bool, bool, int64_t>,
      LayerWork>
      works_;
};

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_STEP_H_
