#include "analysis/runs/made_study_for_test.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "records/record.h"
#include "records/record_writer.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kLaunches = 3;
constexpr int64_t kStepsPerWrite = 1000;
constexpr int64_t kMicroBatches = 4;

struct MadeCell {
  const char* trainer;
  const char* scaling;
  int64_t world_size;
  int64_t batch_size;  // per rank; of a pipeline, per micro-batch
  double step_seconds;
  double exposed_share;
};

constexpr MadeCell kCells[] = {
    {"single", "base", 1, 64, kMadeSingleStepSeconds, 0},
    {"ddp", "strong", 2, 32, kMadeDdpStepSeconds, 0.12},
    {"ddp", "weak", 2, 64, 1.1 * kMadeSingleStepSeconds, 0.06},
    {"pipeline", "strong", 2, 16, 0.07, 0},
};

bool IsPipeline(const MadeCell& cell) {
  return absl::string_view(cell.trainer) == "pipeline";
}

// A rank of a pipeline writes two records per step.
int64_t RecordsPerStep() {
  int64_t records = 0;
  for (const MadeCell& cell : kCells) {
    records += kLaunches * cell.world_size * (IsPipeline(cell) ? 2 : 1);
  }
  return records;
}

RunRecord MakeRunRecord(const MadeCell& cell, int64_t launch, int64_t rank) {
  RunRecord run;
  run.run_id =
      absl::StrCat("made-", cell.trainer, "-", cell.scaling, "-", launch);
  run.binary = cell.trainer;
  run.flags = {{"batch_size", absl::StrCat(cell.batch_size)},
               {"lr", "0.001"},
               {"threads", "1"}};
  if (cell.world_size > 1) run.flags["nproc"] = absl::StrCat(cell.world_size);
  if (IsPipeline(cell)) {
    run.flags["schedule"] = "1f1b";
    run.flags["pp"] = absl::StrCat(cell.world_size);
    run.flags["microbatches"] = absl::StrCat(kMicroBatches);
  }
  SetConfigHashes(&run);
  run.rank = rank;
  run.world_size = cell.world_size;
  run.backend = cell.world_size > 1 ? "gloo" : "";
  run.host = {"made", "A made CPU", std::max<int64_t>(2, cell.world_size),
              int64_t{1} << 34};
  run.devices = {"cpu"};
  run.source_hash = "made";
  return run;
}

StepRecord MakeStep(const MadeCell& cell, int64_t rank, int64_t number,
                    std::mt19937_64& random) {
  std::normal_distribution<double> noise(1, 0.02);
  const double seconds = cell.step_seconds * noise(random);
  StepRecord step;
  step.rank = rank;
  step.step = number;
  step.epoch = 1;
  step.loss = 2.3 * noise(random) / (1 + 0.001 * static_cast<double>(number));
  step.step_seconds = seconds;
  step.data_wait_seconds = 0.01 * seconds * noise(random);
  step.forward_seconds = 0.3 * seconds * noise(random);
  step.backward_seconds = 0.6 * seconds * noise(random);
  step.optimizer_seconds = 0.05 * seconds * noise(random);
  step.exposed_comm_seconds = cell.exposed_share * seconds * noise(random);
  step.examples = cell.batch_size * (IsPipeline(cell) ? kMicroBatches : 1);
  return step;
}

ScheduleRecord MakeSchedule(const MadeCell& cell, const StepRecord& step,
                            std::mt19937_64& random) {
  std::normal_distribution<double> noise(1, 0.02);
  ScheduleRecord record;
  record.rank = step.rank;
  record.step = step.step;
  record.schedule = "1f1b";
  record.pipeline_rank = step.rank;
  record.pipeline_size = record.stages = cell.world_size;
  record.micro_batches = kMicroBatches;
  record.schedule_seconds = 0.9 * step.step_seconds;
  record.span_seconds = 0.85 * step.step_seconds;
  record.busy_seconds = 0.7 * step.step_seconds * noise(random);
  record.wait_seconds = 0.18 * step.step_seconds * noise(random);
  record.exposed_transfer_seconds = 0.05 * step.step_seconds * noise(random);
  record.transfer_seconds = 0.06 * step.step_seconds;
  record.sent_bytes = record.received_bytes = int64_t{1} << 20;
  record.peak_activations = cell.world_size - step.rank;
  record.predicted_seconds = 0.88 * step.step_seconds;
  record.predicted_span_bubble = 0.18;
  record.predicted_wall_bubble = 0.22;
  return record;
}

absl::Status WriteSteps(const MadeCell& cell, int64_t rank, int64_t first,
                        int64_t last, std::mt19937_64& random,
                        RecordWriter& writer) {
  std::vector<StepRecord> steps;
  for (int64_t number = first; number <= last; ++number) {
    steps.push_back(MakeStep(cell, rank, number, random));
    if (!IsPipeline(cell)) continue;
    RETURN_IF_ERROR(writer.Write(MakeSchedule(cell, steps.back(), random)));
  }
  return writer.Write(steps);
}

absl::Status WriteRun(const MadeCell& cell, int64_t launch, int64_t steps,
                      std::mt19937_64& random, RecordWriter& writer) {
  absl::Status status;
  for (int64_t rank = 0; rank < cell.world_size; ++rank) {
    status.Update(writer.Write(MakeRunRecord(cell, launch, rank)));
  }
  for (int64_t first = 1; first <= steps; first += kStepsPerWrite) {
    const int64_t last = std::min(steps, first + kStepsPerWrite - 1);
    for (int64_t rank = 0; status.ok() && rank < cell.world_size; ++rank) {
      status = WriteSteps(cell, rank, first, last, random, writer);
    }
  }
  for (int64_t rank = 0; rank < cell.world_size; ++rank) {
    status.Update(writer.Write(MemoryRecord{rank, int64_t{400} << 20, 0}));
  }
  status.Update(writer.Close());
  return status;
}

absl::StatusOr<std::unique_ptr<RecordWriter>> OpenRun(const std::string& dir,
                                                      const MadeCell& cell,
                                                      int64_t launch) {
  return RecordWriter::Open(absl::StrCat(dir, "/", cell.trainer, "-x",
                                         cell.world_size, "-", cell.scaling,
                                         "-", launch, ".jsonl"));
}

constexpr double kLateStudyOptimizerShare = 0.02;
constexpr double kLateStudyComputeNoise = 0.01;
constexpr double kLateStudyFactors[] = {0.99, 1.005, 1, 0.995, 1.01};

// seconds of every step of every rank, by step, then rank
using Matrix = std::vector<std::vector<double>>;

// A job of data-parallel ranks: random durations and the resulting times.
struct LateJob {
  double compute_seconds = 0;  // before the all-reduce; `noise` is added
  double all_reduce_seconds = 0;
  double optimizer_seconds = 0;  // `lateness` is added
  Matrix noise, lateness;
  Matrix ready;                 // when a rank's gradients are ready
  std::vector<double> reduced;  // when the all-reduce ends
  Matrix ended;                 // when a rank's step ends

  void Run() {
    std::vector<double> starts(noise[0].size(), 0);
    ready = ended = noise;
    reduced.assign(noise.size(), 0);
    for (size_t step = 0; step < noise.size(); ++step) {
      for (size_t rank = 0; rank < starts.size(); ++rank) {
        ready[step][rank] = starts[rank] + compute_seconds + noise[step][rank];
        reduced[step] = std::max(reduced[step], ready[step][rank]);
      }
      reduced[step] += all_reduce_seconds;
      for (size_t rank = 0; rank < starts.size(); ++rank) {
        ended[step][rank] = starts[rank] =
            reduced[step] + optimizer_seconds + lateness[step][rank];
      }
    }
  }

  // Returns the mean step after warm-up.
  double StepSeconds() const {
    return (reduced.back() - reduced[kLateStudyWarmupSteps - 1]) /
           static_cast<double>(kLateStudySteps);
  }
};

LateJob MakeLateJob(const MadeCell& cell, double lateness,
                    std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  LateJob job;
  for (int64_t step = 0; step < kLateStudyWarmupSteps + kLateStudySteps;
       ++step) {
    std::vector<double>& noise = job.noise.emplace_back();
    std::vector<double>& late = job.lateness.emplace_back();
    for (int64_t rank = 0; rank < cell.world_size; ++rank) {
      noise.push_back(kLateStudyComputeNoise * normal(random) *
                      cell.step_seconds);
      late.push_back(lateness * std::abs(normal(random)) * cell.step_seconds);
    }
  }
  job.optimizer_seconds = kLateStudyOptimizerShare * cell.step_seconds;
  job.all_reduce_seconds = cell.exposed_share * cell.step_seconds;
  job.Run();
  // Computation added on all ranks lengthens the job's step by as much.
  job.compute_seconds = cell.step_seconds - job.StepSeconds();
  job.Run();
  return job;
}

StepRecord LateStep(const LateJob& job, const MadeCell& cell, size_t step,
                    int64_t rank) {
  const double start = step == 0 ? 0 : job.ended[step - 1][rank];
  StepRecord record;
  record.rank = rank;
  record.step = static_cast<int64_t>(step) + 1;
  record.epoch = 1;
  record.loss = 2.3;
  record.examples = cell.batch_size;
  record.step_seconds = job.ended[step][rank] - start;
  record.forward_seconds = 0.35 * (job.ready[step][rank] - start);
  record.backward_seconds = job.reduced[step] - start - record.forward_seconds;
  record.exposed_comm_seconds = job.reduced[step] - job.ready[step][rank];
  record.optimizer_seconds = job.ended[step][rank] - job.reduced[step];
  return record;
}

// The all-reduce of LateStep's gradients, not overlapped with backward.
TrafficRecord LateTraffic(const LateJob& job, const StepRecord& step) {
  const size_t i = static_cast<size_t>(step.step) - 1;
  RecordedTransfer all_reduce;
  all_reduce.op = "all_reduce";
  all_reduce.bytes = int64_t{1} << 20;
  all_reduce.count = all_reduce.bytes / 4;
  all_reduce.dtype = "float32";
  all_reduce.end_seconds = step.step_seconds - step.optimizer_seconds;
  all_reduce.start_seconds =
      all_reduce.end_seconds - (job.reduced[i] - job.ready[i][step.rank]);
  return {step.rank,
          step.step,
          {all_reduce},
          step.step_seconds,
          step.exposed_comm_seconds};
}

absl::Status WriteLateRun(const MadeCell& cell, int64_t launch,
                          const LateJob& job, RecordWriter& writer) {
  absl::Status status;
  for (int64_t rank = 0; rank < cell.world_size; ++rank) {
    status.Update(writer.Write(MakeRunRecord(cell, launch, rank)));
    std::vector<StepRecord> steps;
    for (size_t step = 0; step < job.ended.size(); ++step) {
      steps.push_back(LateStep(job, cell, step, rank));
    }
    status.Update(writer.Write(steps));
    if (cell.world_size == 1) continue;
    status.Update(writer.Write(LateTraffic(job, steps.back())));
  }
  status.Update(writer.Close());
  return status;
}

}  // namespace

absl::Status WriteMadeStudy(const std::string& dir,
                            const MadeStudyConfig& config) {
  const int64_t steps =
      (config.records + RecordsPerStep() - 1) / RecordsPerStep();
  std::mt19937_64 random(config.seed);
  for (const MadeCell& cell : kCells) {
    for (int64_t launch = 0; launch < kLaunches; ++launch) {
      ASSIGN_OR_RETURN(auto writer, OpenRun(dir, cell, launch));
      RETURN_IF_ERROR(WriteRun(cell, launch, steps, random, *writer));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteLateStudy(const std::string& dir,
                            const LateStudyConfig& config) {
  std::mt19937_64 random(config.seed);
  const double single = kMadeSingleStepSeconds;
  const MadeCell cells[] = {
      {"single", "base", 1, 64, single, 0},
      {"ddp", "weak", config.ranks, 64, single / config.efficiency,
       kLateStudyAllReduceShare}};
  for (const MadeCell& cell : cells) {
    const bool alone = cell.world_size == 1;
    int64_t launch = 0;
    for (double factor : kLateStudyFactors) {
      MadeCell run = cell;
      // Runs of the two cells are not paired.
      run.step_seconds *= alone ? factor : 2 - factor;
      const LateJob job = MakeLateJob(run, alone ? 0 : config.lateness, random);
      ASSIGN_OR_RETURN(auto writer, OpenRun(dir, run, launch));
      RETURN_IF_ERROR(WriteLateRun(run, launch++, job, *writer));
    }
  }
  return absl::OkStatus();
}

}  // namespace rankwise
