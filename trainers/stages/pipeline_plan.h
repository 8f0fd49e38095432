// How a model is cut into stages: which layers, on which ranks and devices, in
// which order of work; and what each layer costs, measured.
#ifndef RANKWISE_TRAINERS_STAGES_PIPELINE_PLAN_H_
#define RANKWISE_TRAINERS_STAGES_PIPELINE_PLAN_H_

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "parallel/comm/mesh.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "trainers/loop/config.h"
#include "trainers/loop/sharded_model.h"
#include "trainers/loop/training_run.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

struct PipelineConfig {
  // A name of ScheduleNames(), or the absolute path of a CSV file.
  std::string schedule = "1f1b";
  int ranks = 0;     // p, of one pipeline; 0: what the other axes leave
  int replicas = 0;  // dp; 0: what the other axes leave, 1 if p is 0, too
  int context = 1, tensor = 1;  // cp and tp
  // Of the mesh; the last axis changes fastest.
  std::vector<std::string> mesh_order = {"pp", "dp", "cp", "tp"};
  int64_t micro_batches = 8;  // m, per optimizer step and replica
  int chunks = 0;             // v, stages per rank; 0: the schedule's own
  // Where to cut: layers, parameters, flops or time (equal shares of each), or
  // the first layer of every stage but the first ("2,5").
  std::string split = "flops";
  ZeroConfig zero = {};    // along dp
  bool recompute = false;  // keep stage inputs only, run forwards again
};

// Of a job of `world_size` ranks.
std::vector<MeshAxis> PipelineAxes(const PipelineConfig& config,
                                   int world_size);

// "cuda:0,cuda:1", or "cpu,cpu", where each cpu is a slot; they may repeat.
// InvalidArgument that names --devices for a device that is not there.
absl::StatusOr<std::vector<c10::Device>> ParseStageDevices(
    absl::string_view text);

// `split` as in PipelineConfig; "time" balances `layer_seconds`, one per layer.
// InvalidArgument that names --split for more stages than layers, a cut outside
// the model or another word.
absl::StatusOr<std::vector<LayerRange>> SplitModel(
    const ModelSpec& model, const std::string& split, int num_stages,
    absl::Span<const double> layer_seconds = {});

// One layer and one batch; times are medians.
struct LayerProfile {
  double forward_seconds = 0;
  double backward_seconds = 0;  // of input and weights; 0 without either
};

// The size of the output of `stage` for `examples` examples.
int64_t OutputBytes(const ModelSpec& spec, const LayerRange& stage,
                    int64_t examples, torch::ScalarType type = torch::kFloat);

// One line per stage, for people: its layers, parameters, a micro-batch's bytes
// of output and forward FLOPs, and, with a `profile` of all layers, forward and
// backward time. A tied weight counts in the stage that owns it.
// `output_types`: one per stage; fp32 if empty.
std::string StageTable(const ModelSpec& spec,
                       absl::Span<const LayerRange> stages,
                       int64_t micro_batch_examples,
                       absl::Span<const LayerProfile> profile = {},
                       absl::Span<const torch::ScalarType> output_types = {});

// The same on every rank but for the profile and what is here. A rank is a
// process, or, with worker.devices, all ranks of one pipeline are in this
// process, each on its device.
class PipelinePlan {
 public:
  // InvalidArgument where ranks, stages, layers and schedule do not fit.
  // `worker` must outlive the plan. Under --split=time the first rank builds
  // the whole model, runs its first micro-batch through it a few times, and
  // tells the other ranks what each layer took; collective then.
  static absl::StatusOr<std::unique_ptr<PipelinePlan>> Create(
      const TrainConfig& config, const Worker& worker,
      const PipelineConfig& pipeline);

  // The schedule of a step of that many micro-batches, with communication: the
  // first ones of a full step's where an epoch's last step has fewer. It stays
  // where it is until PlanAgain changes the plan for the second time, so that
  // the plan after it has another address.
  absl::StatusOr<const Schedule*> ScheduleFor(size_t micro_batches);

  // Whether the schedule depends on what actions cost: zero_bubble_auto.
  bool is_planned() const;
  // Plans for `costs`, the same on all ranks, from now on. Keeps the order of
  // work that it has where no other is faster by these. Says what that gains,
  // in a line for people. `step`: the last one that ran. Only if is_planned().
  absl::StatusOr<std::string> PlanAgain(int64_t step,
                                        const SimulationCosts& costs);
  // What the schedule was planned for: how long the F, I and W of `stage` take,
  // and a message to the next. Empty where nothing was measured before.
  std::map<std::string, double> PlannedSeconds(int stage) const;

  const PipelineConfig& config() const { return config_; }
  const ModelSpec& model() const { return model_; }
  const std::vector<LayerRange>& stages() const { return stages_; }
  const std::vector<int>& rank_of_stage() const { return rank_of_stage_; }
  // By layer; empty if none was made here.
  const std::vector<LayerProfile>& profile() const { return profile_; }

  bool in_one_process() const { return !worker_.devices.empty(); }
  // Of the pipeline: all of its ranks, and those that this process runs.
  int num_ranks() const;
  const std::vector<int>& ranks_here() const { return ranks_here_; }
  bool IsHere(int stage) const;
  // Of one of ranks_here.
  torch::Device DeviceOf(int rank) const;
  // The rank that computes `layer`.
  int RankOf(size_t layer) const;

  // What this process holds of the model.
  ModelPlacement Placement() const;
  // Of a pipeline in one process: a line that says where its ranks are.
  std::string DescribeDevices() const;

 private:
  PipelinePlan(const Worker& worker, const PipelineConfig& config,
               ModelSpec model);
  absl::Status Cut(const TrainConfig& config, int num_stages);
  // The most that the ranks here hold together in a full step, computed: what
  // micro-batches keep for backward, and messages. `schedule` has
  // communication.
  int64_t ComputeActivations(const TrainConfig& config,
                             const Schedule& schedule) const;
  // Of a full step, computation only, for `costs`.
  absl::StatusOr<Schedule> MakeFull(const SimulationCosts& costs) const;
  // Of costs by layer; a backward's halves count as equally long.
  SimulationCosts CostsOf(absl::Span<const double> forward_seconds,
                          absl::Span<const double> backward_seconds) const;

  const Worker& worker_;
  const PipelineConfig config_;
  const ModelSpec model_;
  std::vector<int> ranks_here_;
  std::vector<LayerRange> stages_;
  std::vector<LayerProfile> profile_;
  std::vector<int> rank_of_stage_;
  int64_t activation_bytes_ = 0;          // of all ranks here, computed
  std::vector<SectionPass> passes_;       // of all ranks here
  SimulationCosts costs_;                 // without stages: not measured
  Schedule full_;                         // of a full step, computation only
  std::map<size_t, Schedule> schedules_;  // by micro-batches
  std::map<size_t, Schedule> replaced_;   // of the plan before
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_PIPELINE_PLAN_H_
