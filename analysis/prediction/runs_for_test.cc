#include "analysis/prediction/runs_for_test.h"

#include "absl/strings/str_cat.h"
#include "analysis/prediction/recordings.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

RunRecord MakeRunRecord(const std::string& binary, const std::string& run_id,
                        int64_t rank, int64_t world_size) {
  RunRecord run;
  run.run_id = run_id;
  run.binary = binary;
  run.flags = {{"model", "simple_cnn"}};
  run.rank = rank;
  run.world_size = world_size;
  run.backend = "gloo";
  run.host = {"host", "A CPU", 8, 1LL << 33};
  run.devices = {"cpu"};
  return run;
}

void SetMemory(RankTrace* rank, double bytes) {
  if (bytes == 0) return;
  rank->memory.emplace();
  rank->memory->rank = rank->run.rank;
  rank->memory->peak_host_bytes = static_cast<int64_t>(bytes);
}

// Returns the step's successive all-reduces.
TrafficRecord MakeTraffic(const DdpRunForTest& config, const StepRecord& step,
                          double before) {
  TrafficRecord traffic;
  traffic.rank = step.rank;
  traffic.step = step.step;
  double done = 0;
  for (const ReadyBucket& bucket : config.trace.buckets) {
    const double start = before + bucket.ready_seconds;
    const double cost = config.world_size == 1
                            ? 0
                            : config.alpha_seconds +
                                  bucket.bytes * config.beta_seconds_per_byte;
    done = std::max(done, start) + cost;
    RecordedTransfer event;
    event.op = "all_reduce";
    event.bytes = static_cast<int64_t>(bucket.bytes);
    event.start_seconds = start;
    event.end_seconds = done;
    traffic.events.push_back(event);
  }
  return traffic;
}

RankTrace MakeDdpRank(const DdpRunForTest& config, int64_t rank) {
  RankTrace result{
      MakeRunRecord("ddp", config.run_id, rank, config.world_size)};
  result.run.backend = config.backend;
  result.run.hosts = config.hosts;
  result.run.host_index = rank * config.hosts / config.world_size;
  result.run.flags["batch_size"] = absl::StrCat(config.batch);
  result.run.flags["skip_communication"] =
      config.skip_communication ? "true" : "false";
  const bool alone = config.world_size == 1 || config.skip_communication;
  for (int64_t i = 1; i <= config.steps; ++i) {
    const std::vector<double>& jitter = config.jitter_seconds;
    DdpStepTrace trace = config.trace;
    trace.before_backward_seconds += jitter[(i + 7 * rank) % jitter.size()];
    std::vector<double> seconds;
    for (const ReadyBucket& bucket : trace.buckets) {
      seconds.push_back(alone
                            ? 0
                            : config.alpha_seconds +
                                  bucket.bytes * config.beta_seconds_per_byte);
    }
    const StepTimes times = SimulateDdpStep(trace, seconds);
    StepRecord step;
    step.rank = rank;
    step.step = i;
    step.epoch = 1;
    step.step_seconds = times.step_seconds;
    step.backward_seconds = trace.backward_seconds + times.exposed_comm_seconds;
    step.optimizer_seconds = trace.after_backward_seconds;
    step.exposed_comm_seconds = times.exposed_comm_seconds;
    step.examples = config.batch;
    result.steps.push_back(step);
    if (i > 2 && i <= 2 + config.traffic_steps && !config.skip_communication) {
      result.traffic.push_back(
          MakeTraffic(config, step, trace.before_backward_seconds));
    }
  }
  SetMemory(&result, config.peak_bytes);
  return result;
}

Schedule ScheduleOf(const PipelineRunForTest& config) {
  return *MakeSchedule(
      config.schedule,
      {.num_ranks = static_cast<int>(config.pp),
       .num_micro_batches = static_cast<int>(config.micro_batches),
       .chunks = static_cast<int>(config.chunks)});
}

Timeline TimelineOf(const PipelineRunForTest& config) {
  return *Simulate(ScheduleOf(config), {{config.costs}, config.link});
}

StepTimes TimesOf(const PipelineRunForTest& config) {
  const int64_t chunks = ScheduleOf(config).num_stages() / config.pp;
  const std::vector<double> of_rank(config.dp > 1 ? chunks : 0,
                                    config.all_reduce_seconds);
  return PipelineStep(TimelineOf(config), 1,
                      std::vector<std::vector<double>>(config.pp, of_rank),
                      std::vector<double>(config.pp, config.outside_seconds));
}

TimelineRecord ToRecord(const std::vector<Span>& spans, int64_t rank,
                        int64_t step, const std::string& schedule) {
  TimelineRecord record;
  record.rank = rank;
  record.step = step;
  record.schedule = schedule;
  for (const Span& span : spans) {
    if (!IsCompute(span.action.kind)) continue;
    record.spans.push_back({std::string(NameOf(span.action.kind)),
                            span.action.stage, span.action.micro_batch,
                            span.start_seconds, span.end_seconds});
  }
  return record;
}

// Counts boundaries to other ranks' stages, in each direction, per micro-batch.
int64_t SendsPerMicroBatch(const Schedule& schedule, int rank) {
  int64_t sends = 0;
  for (int stage : schedule.StagesOf(rank)) {
    for (int other : {stage - 1, stage + 1}) {
      sends += other >= 0 && other < schedule.num_stages() &&
               schedule.rank_of_stage[other] != rank;
    }
  }
  return sends;
}

ScheduleRecord MakeScheduleRecord(const PipelineRunForTest& config,
                                  const Schedule& schedule, int64_t rank,
                                  int64_t step) {
  ScheduleRecord record;
  record.rank = rank;
  record.step = step;
  record.schedule = config.schedule;
  record.pipeline_size = config.pp;
  record.pipeline_rank = rank % config.pp;
  record.replica = rank / config.pp;
  record.replicas = config.dp;
  record.stages = schedule.num_stages();
  record.micro_batches = config.micro_batches;
  const int place = static_cast<int>(record.pipeline_rank);
  const int64_t sends =
      SendsPerMicroBatch(schedule, place) * config.micro_batches;
  record.sent_bytes = static_cast<int64_t>(static_cast<double>(sends) *
                                           config.costs.output_bytes);
  record.transfer_seconds =
      static_cast<double>(sends) *
      (config.link.alpha_seconds +
       config.costs.output_bytes * config.link.beta_seconds_per_byte);
  record.peak_activations = Validate(schedule)->peak_activations[place];
  return record;
}

RankTrace MakePipelineRank(const PipelineRunForTest& config, int64_t rank) {
  const Schedule schedule = ScheduleOf(config);
  const Timeline timeline = TimelineOf(config);
  const StepTimes times = TimesOf(config);
  const int64_t place = rank % config.pp;
  RankTrace result{
      MakeRunRecord("pipeline", config.run_id, rank, config.pp * config.dp)};
  result.run.flags["schedule"] = config.schedule;
  result.run.flags["skip_communication"] =
      config.skip_communication ? "true" : "false";
  result.run.flags["microbatches"] = absl::StrCat(config.micro_batches);
  for (int64_t i = 1; i <= config.steps; ++i) {
    ScheduleRecord record = MakeScheduleRecord(config, schedule, rank, i);
    StepRecord step;
    step.rank = rank;
    step.step = i;
    step.epoch = 1;
    step.step_seconds = times.step_seconds;
    step.exposed_comm_seconds = times.exposed_comm_seconds;
    step.optimizer_seconds = 0.001;
    step.examples = config.micro_batches * config.micro_batch;
    const Extent extent = ExtentOf(timeline.ranks[place]);
    record.busy_seconds = extent.busy_seconds();
    record.span_seconds = extent.seconds();
    record.schedule_seconds = times.step_seconds - config.outside_seconds -
                              times.exposed_comm_seconds;
    result.steps.push_back(step);
    result.schedules.push_back(record);
    if (i > 2 && i <= 2 + config.timeline_steps) {
      result.timelines.push_back(
          ToRecord(timeline.ranks[place], rank, i, config.schedule));
    }
  }
  if (!config.gradient_bytes.empty()) {
    TrafficRecord traffic;
    traffic.rank = rank;
    traffic.step = 3;
    RecordedTransfer event;
    event.op = "all_reduce";
    event.bytes = static_cast<int64_t>(config.gradient_bytes[place]);
    for (int64_t replica = 0; replica < config.dp; ++replica) {
      event.ranks.push_back(replica * config.pp + place);
    }
    traffic.events.push_back(event);
    result.traffic.push_back(traffic);
  }
  const double kept = static_cast<double>(result.schedules[0].peak_activations);
  if (config.base_bytes > 0) {
    SetMemory(&result, config.base_bytes + kept * config.bytes_per_activation);
  }
  return result;
}

}  // namespace

RunTrace MakeDdpRun(const DdpRunForTest& config) {
  RunTrace run;
  run.source = config.run_id + ".jsonl";
  const int64_t recorded = config.backend == "fake" ? 1 : config.world_size;
  for (int64_t rank = 0; rank < recorded; ++rank) {
    run.ranks.push_back(MakeDdpRank(config, rank));
    SetConfigHashes(&run.ranks.back().run);
  }
  return run;
}

RunTrace MakePipelineRun(const PipelineRunForTest& config) {
  RunTrace run;
  run.source = config.run_id + ".jsonl";
  for (int64_t rank = 0; rank < config.pp * config.dp; ++rank) {
    run.ranks.push_back(MakePipelineRank(config, rank));
    SetConfigHashes(&run.ranks.back().run);
  }
  return run;
}

double PipelineStepSeconds(const PipelineRunForTest& config) {
  return TimesOf(config).step_seconds;
}

}  // namespace rankwise
