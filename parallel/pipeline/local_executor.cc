#include "parallel/pipeline/local_executor.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "parallel/pipeline/forward_schedule.h"
#include "parallel/pipeline/issue_order.h"
#include "parallel/pipeline/local_mail.h"
#include "parallel/pipeline/schedule_run.h"
#include "parallel/pipeline/stage_runner.h"
#include "parallel/pipeline/stage_streams.h"
#include "parallel/pipeline/wire_format.h"

namespace rankwise {
namespace {

std::vector<c10::Device> DevicesOfStages(const LocalExecutorConfig& config) {
  std::vector<c10::Device> devices;
  for (int rank : config.rank_of_stage)
    devices.push_back(config.devices[static_cast<size_t>(rank)]);
  return devices;
}

}  // namespace

struct LocalExecutor::Parts {
  Parts(std::vector<Stage*> stages, LocalExecutorConfig executor_config);

  int num_ranks() const { return static_cast<int>(config.devices.size()); }
  RunParts ForRank(size_t rank) {
    return {*mail[rank], streams, buffers[rank], runners};
  }
  std::vector<std::unique_ptr<ScheduleRun>> RunAll(
      const Schedule& schedule, const ScheduleRun::Options& options);
  at::Tensor AddUp(const std::vector<at::Tensor>& shares) const;

  const LocalExecutorConfig config;
  StageStreams streams;
  LocalPostOffice office;
  std::vector<std::unique_ptr<Mail>> mail;  // by rank
  std::vector<WireBuffers> buffers;         // by rank
  StageRunners runners;
};

LocalExecutor::Parts::Parts(std::vector<Stage*> stages,
                            LocalExecutorConfig executor_config)
    : config(std::move(executor_config)),
      streams(stages, DevicesOfStages(config)),
      office(config.devices, streams) {
  TORCH_CHECK(stages.size() == config.rank_of_stage.size(), stages.size(),
              " stages, but ranks for ", config.rank_of_stage.size());
  for (int rank = 0; rank < num_ranks(); ++rank) {
    mail.push_back(office.MailOf(rank));
    buffers.emplace_back(config.devices[static_cast<size_t>(rank)],
                         config.skip_communication);
  }
  for (Stage* stage : stages) {
    const bool is_last = runners.size() + 1 == stages.size();
    runners.push_back(
        std::make_unique<StageRunner>(stage, is_last, config.recompute));
  }
}

std::vector<std::unique_ptr<ScheduleRun>> LocalExecutor::Parts::RunAll(
    const Schedule& schedule, const ScheduleRun::Options& options) {
  std::vector<std::unique_ptr<ScheduleRun>> runs;
  for (size_t rank = 0; rank < mail.size(); ++rank) {
    mail[rank]->TakeWaits();
    runs.push_back(
        std::make_unique<ScheduleRun>(schedule, ForRank(rank), options));
  }
  streams.Begin();
  for (int rank : IssueOrder(schedule)) runs[static_cast<size_t>(rank)]->Next();
  for (const auto& run : runs) {
    TORCH_CHECK(run->done(), "schedule ", schedule.name,
                " cannot run: its ranks wait for each other in a circle");
    run->Finish();
  }
  streams.End();
  return runs;
}

at::Tensor LocalExecutor::Parts::AddUp(
    const std::vector<at::Tensor>& shares) const {
  const c10::Device device =
      config.devices[static_cast<size_t>(config.rank_of_stage.back())];
  at::Tensor loss = at::zeros({}, at::TensorOptions(at::kFloat).device(device));
  for (const at::Tensor& share : shares) loss += share.to(at::kFloat);
  return loss;
}

LocalExecutor::LocalExecutor(std::vector<Stage*> stages,
                             LocalExecutorConfig config)
    : parts_(std::make_unique<Parts>(std::move(stages), std::move(config))) {}

LocalExecutor::~LocalExecutor() = default;

std::vector<StepInFlight> LocalExecutor::Run(const Schedule& schedule) {
  Parts& parts = *parts_;
  TORCH_CHECK(schedule.num_ranks() == parts.num_ranks() &&
                  schedule.rank_of_stage == parts.config.rank_of_stage,
              "schedule ", schedule.name, " is for ", schedule.num_ranks(),
              " ranks and ", schedule.num_stages(),
              " stages; the model was cut in another way");
  ScheduleRun::Options options;
  options.skip_communication = parts.config.skip_communication;
  const auto runs = parts.RunAll(schedule, options);
  const auto last = static_cast<size_t>(schedule.rank_of_stage.back());
  const at::Tensor loss = parts.AddUp(runs[last]->shares());
  std::vector<StepInFlight> steps;
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    steps.push_back(runs[rank]->TakeStep());
    steps.back().loss = loss;
    steps.back().waits = parts.mail[rank]->TakeWaits();
    steps.back().end.emplace(parts.config.devices[rank]);
  }
  return steps;
}

void LocalExecutor::RunForward(int micro_batches) {
  Parts& parts = *parts_;
  ScheduleRun::Options options;
  options.evaluate = true;
  parts.RunAll(MakeForwardSchedule(parts.config.rank_of_stage,
                                   parts.num_ranks(), micro_batches),
               options);
}

}  // namespace rankwise
