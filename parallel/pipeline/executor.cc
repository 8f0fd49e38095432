#include "parallel/pipeline/executor.h"

#include <utility>

#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "parallel/pipeline/channel.h"
#include "parallel/pipeline/forward_schedule.h"
#include "parallel/pipeline/schedule_run.h"
#include "parallel/pipeline/stage_runner.h"
#include "parallel/pipeline/stage_streams.h"
#include "parallel/pipeline/wire_format.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

struct PipelineExecutor::Parts {
  Parts(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks,
        int rank, const std::vector<Stage*>& stages,
        ExecutorConfig executor_config)
      : config(std::move(executor_config)),
        channel(std::move(group), std::move(ranks), rank, config.device),
        streams(stages, std::vector<c10::Device>(stages.size(), config.device)),
        buffers(config.device, config.skip_communication) {}

  void CheckPlacement(const Schedule& schedule) const;
  at::Tensor ShareLoss(const std::vector<at::Tensor>& shares, int rank_of_loss);
  const std::vector<int>& RankOfStage();
  RunParts ForRun() { return {channel, streams, buffers, runners}; }

  ExecutorConfig config;
  Channel channel;
  StageStreams streams;
  WireBuffers buffers;
  StageRunners runners;
  std::vector<int> rank_of_stage;  // empty until known
};

void PipelineExecutor::Parts::CheckPlacement(const Schedule& schedule) const {
  TORCH_CHECK(schedule.num_ranks() == channel.num_ranks(), "schedule ",
              schedule.name, " is for ", schedule.num_ranks(),
              " ranks; the pipeline has ", channel.num_ranks());
  TORCH_CHECK(static_cast<size_t>(schedule.num_stages()) == runners.size(),
              "schedule ", schedule.name, " is for ", schedule.num_stages(),
              " stages; the model was cut into ", runners.size());
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    const bool is_ours = schedule.rank_of_stage[stage] == channel.rank();
    TORCH_CHECK(is_ours == (runners[stage] != nullptr), "schedule ",
                schedule.name, " runs stage ", stage, " on rank ",
                schedule.rank_of_stage[stage], "; rank ", channel.rank(),
                is_ours ? " does not hold it" : " holds it");
  }
}

// The sum of the shares, in order of micro-batch, from the last stage's rank.
at::Tensor PipelineExecutor::Parts::ShareLoss(
    const std::vector<at::Tensor>& shares, int rank_of_loss) {
  at::Tensor loss =
      at::zeros({}, at::TensorOptions(at::kFloat).device(config.device));
  for (const at::Tensor& share : shares) loss += share.to(at::kFloat);
  constexpr int kTag = 0;  // nothing else is in flight
  std::vector<P2POp> transfers;
  if (channel.rank() != rank_of_loss) {
    transfers.emplace_back(false, rank_of_loss, kTag, loss);
  } else {
    for (int peer = 0; peer < channel.num_ranks(); ++peer) {
      if (peer == rank_of_loss) continue;
      transfers.emplace_back(true, peer, kTag, loss);
    }
  }
  for (P2POp& transfer : transfers) channel.Start(transfer);
  for (P2POp& transfer : transfers) channel.Wait(transfer);
  return loss;
}

// Where the stages are, by asking all ranks if no schedule has said it yet.
const std::vector<int>& PipelineExecutor::Parts::RankOfStage() {
  if (!rank_of_stage.empty()) return rank_of_stage;
  std::vector<double> held;
  for (const auto& runner : runners) held.push_back(runner != nullptr);
  const std::vector<std::vector<double>> held_by_rank = channel.Gather(held);
  rank_of_stage.assign(runners.size(), 0);
  for (int rank = 0; rank < channel.num_ranks(); ++rank) {
    for (size_t stage = 0; stage < runners.size(); ++stage) {
      if (held_by_rank[rank][stage] != 0) rank_of_stage[stage] = rank;
    }
  }
  return rank_of_stage;
}

PipelineExecutor::PipelineExecutor(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                   std::vector<int> ranks, int rank,
                                   std::vector<Stage*> stages,
                                   ExecutorConfig config)
    : parts_(std::make_unique<Parts>(std::move(group), std::move(ranks), rank,
                                     stages, std::move(config))) {
  TORCH_CHECK(!stages.empty(), "a pipeline without stages");
  for (Stage* stage : stages) {
    parts_->runners.push_back(nullptr);
    if (stage == nullptr) continue;
    parts_->runners.back() = std::make_unique<StageRunner>(
        stage, parts_->runners.size() == stages.size(),
        parts_->config.recompute);
  }
}

PipelineExecutor::~PipelineExecutor() = default;

StepInFlight PipelineExecutor::Run(const Schedule& schedule) {
  Parts& parts = *parts_;
  parts.CheckPlacement(schedule);
  parts.rank_of_stage = schedule.rank_of_stage;
  parts.channel.Connect(schedule);
  parts.channel.TakeWaits();
  ScheduleRun::Options options;
  options.on_gradients_ready = parts.config.on_gradients_ready;
  options.skip_communication = parts.config.skip_communication;
  ScheduleRun run(schedule, parts.ForRun(), std::move(options));
  parts.streams.Begin();
  run.Run();
  parts.streams.End();
  StepInFlight step = run.TakeStep();
  step.loss = parts.ShareLoss(run.shares(), schedule.rank_of_stage.back());
  step.waits = parts.channel.TakeWaits();
  step.end.emplace(parts.config.device);
  return step;
}

void PipelineExecutor::RunForward(int micro_batches) {
  Parts& parts = *parts_;
  const Schedule schedule = MakeForwardSchedule(
      parts.RankOfStage(), parts.channel.num_ranks(), micro_batches);
  parts.channel.Connect(schedule);
  ScheduleRun::Options options;
  options.evaluate = true;
  // Enough for every stage of this rank to be ahead of its reader.
  options.max_sends = 2 * schedule.StagesOf(parts.channel.rank()).size() + 2;
  parts.streams.Begin();
  ScheduleRun(schedule, parts.ForRun(), std::move(options)).Run();
  parts.streams.End();
  parts.channel.TakeWaits();
}

}  // namespace rankwise
