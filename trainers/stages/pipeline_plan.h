// The cut of a model into stages: their layers, ranks, devices and schedule;
// and the measured cost of each layer.
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
  int ranks = 0;     // p, per pipeline; 0 for all that the other axes leave
  int replicas = 0;  // dp; 0 for all that remain, 1 if p is also 0
  int context = 1, tensor = 1;  // cp and tp
  // Order of the mesh's axes; the last one changes fastest.
  std::vector<std::string> mesh_order = {"pp", "dp", "cp", "tp"};
  int64_t micro_batches = 8;  // m, per optimizer step and replica
  int chunks = 0;  // v, stages per rank; 0 for the schedule's default
  // Measure to balance: layers, parameters, flops or time; or the first layer
  // of every stage but the first ("2,5").
  std::string split = "flops";
  ZeroConfig zero = {};    // along dp
  bool recompute = false;  // store only stage inputs and recompute forwards
};

// Returns the axes of a job of `world_size` ranks.
std::vector<MeshAxis> PipelineAxes(const PipelineConfig& config,
                                   int world_size);

// Parses "cuda:0,cuda:1", or "cpu,cpu", where each cpu is a slot; devices may
// repeat. InvalidArgument naming --devices for a device that does not exist.
absl::StatusOr<std::vector<c10::Device>> ParseStageDevices(
    absl::string_view text);

// Cuts the model. `split` as in PipelineConfig; "time" balances
// `layer_seconds`, one per layer. InvalidArgument naming --split for more
// stages than layers, a cut outside the model or an unknown value.
absl::StatusOr<std::vector<LayerRange>> SplitModel(
    const ModelSpec& model, const std::string& split, int num_stages,
    absl::Span<const double> layer_seconds = {});

// Medians for one layer and one batch.
struct LayerProfile {
  double forward_seconds = 0;
  double backward_seconds = 0;  // for input and weights; 0 without either
};

// Returns the bytes of the output of `stage` for `examples` examples.
int64_t OutputBytes(const ModelSpec& spec, const LayerRange& stage,
                    int64_t examples, torch::ScalarType type = torch::kFloat);

// Returns a table with one line per stage: its layers, parameters, a
// micro-batch's output bytes and forward FLOPs, and, with a `profile` of all
// layers, forward and backward times. A tied weight counts in the stage that
// owns it. `output_types`: one per stage; fp32 if empty.
std::string StageTable(const ModelSpec& spec,
                       absl::Span<const LayerRange> stages,
                       int64_t micro_batch_examples,
                       absl::Span<const LayerProfile> profile = {},
                       absl::Span<const torch::ScalarType> output_types = {});

// Identical on every rank except for the profile and the local ranks. A rank is
// a process, or, with worker.devices, all ranks of one pipeline are in this
// process, each on its device.
class PipelinePlan {
 public:
  // InvalidArgument if ranks, stages, layers and schedule do not fit. `worker`
  // must outlive the plan. Under --split=time, creation is collective: the
  // first rank builds the whole model, runs its first micro-batch through it a
  // few times, and sends each layer's times to the other ranks.
  static absl::StatusOr<std::unique_ptr<PipelinePlan>> Create(
      const TrainConfig& config, const Worker& worker,
      const PipelineConfig& pipeline);

  // Returns the schedule of a step of `micro_batches` micro-batches, with
  // communication: the first ones of a full step's if an epoch's last step has
  // fewer. The pointer stays valid until Replan has changed the plan twice,
  // so the new plan's schedule has a different address.
  absl::StatusOr<const Schedule*> ScheduleFor(size_t micro_batches);

  // Returns whether the schedule depends on costs: zero_bubble_auto.
  bool is_planned() const;
  // From now on plans for `costs`, which must be identical on all ranks. Keeps
  // the current schedule if no other is faster with these costs. Returns a line
  // for the console. `step`: the last one that ran. Requires is_planned().
  absl::StatusOr<std::string> Replan(int64_t step,
                                     const SimulationCosts& costs);
  // Returns the seconds that the schedule was planned for: F, I and W of
  // `stage` and a message to the next stage. Empty if none were measured.
  std::map<std::string, double> PlannedSeconds(int stage) const;

  const PipelineConfig& config() const { return config_; }
  const ModelSpec& model() const { return model_; }
  const std::vector<LayerRange>& stages() const { return stages_; }
  const std::vector<int>& rank_of_stage() const { return rank_of_stage_; }
  // By layer; empty if no profile was made here.
  const std::vector<LayerProfile>& profile() const { return profile_; }

  bool in_one_process() const { return !worker_.devices.empty(); }
  // All ranks of the pipeline, and those that this process runs.
  int num_ranks() const;
  const std::vector<int>& ranks_here() const { return ranks_here_; }
  bool IsHere(int stage) const;
  // `rank` must be one of ranks_here().
  torch::Device DeviceOf(int rank) const;
  // Returns the rank that computes `layer`.
  int RankOf(size_t layer) const;

  // Returns this process's part of the model.
  ModelPlacement Placement() const;
  // Returns a line with the devices of the ranks of a pipeline in one process.
  std::string DescribeDevices() const;

 private:
  PipelinePlan(const Worker& worker, const PipelineConfig& config,
               ModelSpec model);
  absl::Status Cut(const TrainConfig& config, int num_stages);
  // Returns the computed peak bytes of all ranks here in a full step:
  // activations stored for backward, and messages. `schedule` has
  // communication.
  int64_t ComputeActivations(const TrainConfig& config,
                             const Schedule& schedule) const;
  // Returns the schedule of a full step for `costs`, computation only.
  absl::StatusOr<Schedule> MakeFull(const SimulationCosts& costs) const;
  // Sums layers' costs by stage; both halves of a backward count equally.
  SimulationCosts CostsOf(absl::Span<const double> forward_seconds,
                          absl::Span<const double> backward_seconds) const;

  const Worker& worker_;
  const PipelineConfig config_;
  const ModelSpec model_;
  std::vector<int> ranks_here_;
  std::vector<LayerRange> stages_;
  std::vector<LayerProfile> profile_;
  std::vector<int> rank_of_stage_;
  int64_t activation_bytes_ = 0;          // computed, of all ranks here
  std::vector<SectionPass> passes_;       // of all ranks here
  SimulationCosts costs_;                 // without stages if not measured
  Schedule full_;                         // of a full step, computation only
  std::map<size_t, Schedule> schedules_;  // by number of micro-batches
  std::map<size_t, Schedule> replaced_;   // of the previous plan
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_PIPELINE_PLAN_H_
