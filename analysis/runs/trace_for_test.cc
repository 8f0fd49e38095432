#include "analysis/runs/trace_for_test.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

RunRecord MakeRunRecord(const RunForTest& config, int64_t rank) {
  RunRecord run;
  run.run_id = config.run_id;
  run.binary = config.binary;
  run.flags = {{"batch_size", absl::StrCat(config.batch_size)}, {"lr", "0.1"}};
  if (config.binary != "single") {
    run.flags["nproc"] = absl::StrCat(config.world_size);
    if (config.schedule.empty()) run.flags["bucket_cap_mb"] = "25";
  }
  if (!config.schedule.empty()) {
    run.flags["schedule"] = config.schedule;
    run.flags["pp"] = absl::StrCat(config.world_size / config.replicas);
    run.flags["dp"] = absl::StrCat(config.replicas);
    run.flags["microbatches"] = absl::StrCat(config.micro_batches);
  }
  SetConfigHashes(&run);
  run.rank = rank;
  run.world_size = config.world_size;
  run.host = {"host", "A CPU", 8, 1LL << 33};
  run.devices = {"cpu"};
  run.versions.torch = "2.11.0";
  run.source_hash = "0123456789abcdef";
  run.example = config.tokens_per_example > 0 ? "sequence" : "image";
  run.tokens_per_example = config.tokens_per_example;
  return run;
}

ScheduleRecord MakeScheduleRecord(const RunForTest& config, int64_t rank,
                                  int64_t step) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  ScheduleRecord record;
  record.rank = rank;
  record.step = step;
  record.schedule = config.schedule;
  record.pipeline_size = config.world_size / config.replicas;
  record.pipeline_rank = rank % record.pipeline_size;
  record.replica = rank / record.pipeline_size;
  record.replicas = config.replicas;
  record.stages = record.pipeline_size;
  record.micro_batches = config.micro_batches;
  record.schedule_seconds = 0.8 * config.step_seconds;
  record.span_seconds = 0.6 * config.step_seconds;
  record.busy_seconds = 0.3 * config.step_seconds;
  record.wait_seconds = 0.2 * config.step_seconds;
  record.transfer_seconds = 0.02 * config.step_seconds;
  record.sent_bytes = record.received_bytes = 1000;
  record.peak_activations = record.pipeline_size - record.pipeline_rank;
  record.predicted_seconds = step < 4 ? unknown : 0.7 * config.step_seconds;
  record.predicted_span_bubble = step < 4 ? unknown : 0.4;
  record.predicted_wall_bubble = step < 4 ? unknown : 0.6;
  return record;
}

}  // namespace

RunTrace MakeRun(const RunForTest& config) {
  RunTrace run;
  run.source = config.run_id + ".jsonl";
  for (int64_t rank = 0; rank < config.world_size; ++rank) {
    RankTrace trace{MakeRunRecord(config, rank), {}, {}};
    for (int64_t i = 1; i <= config.steps; ++i) {
      StepRecord step;
      step.rank = rank;
      step.step = i;
      step.epoch = 1;
      step.step_seconds = config.step_seconds;
      step.exposed_comm_seconds = 0.1 * config.step_seconds;
      step.data_wait_seconds = 0.05 * config.step_seconds;
      step.examples = config.batch_size;
      if (!config.schedule.empty()) {
        step.examples *= config.micro_batches;  // of the whole replica
        trace.schedules.push_back(MakeScheduleRecord(config, rank, i));
      }
      trace.steps.push_back(step);
    }
    run.ranks.push_back(trace);
  }
  return run;
}

void CaptureSteps(RunTrace& run) {
  for (RankTrace& trace : run.ranks) {
    for (StepRecord& step : trace.steps) {
      step.captured_seconds =
          step.forward_seconds + step.backward_seconds + step.optimizer_seconds;
      step.forward_seconds = step.backward_seconds = 0;
      step.optimizer_seconds = step.exposed_comm_seconds = 0;
    }
  }
}

}  // namespace rankwise
