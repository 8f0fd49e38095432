#include "analysis/made_study.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "records/config_hash.h"
#include "records/record.h"
#include "records/record_writer.h"

namespace rankwise {
namespace {

constexpr int64_t kLaunches = 3;
constexpr int64_t kStepsPerWrite = 1000;
constexpr int64_t kMicroBatches = 4;

struct MadeCell {
  const char* trainer;
  const char* scaling;
  int64_t world_size;
  int64_t batch_size;  // per rank; of a pipeline per micro-batch
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

// A pipeline's rank writes two records a step.
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
  run.host = {"made", "A made CPU", 2, int64_t{1} << 34};
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
    absl::Status written =
        writer.Write(MakeSchedule(cell, steps.back(), random));
    if (!written.ok()) return written;
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

}  // namespace

absl::Status WriteMadeStudy(const std::string& dir,
                            const MadeStudyConfig& config) {
  const int64_t steps =
      (config.records + RecordsPerStep() - 1) / RecordsPerStep();
  std::mt19937_64 random(config.seed);
  for (const MadeCell& cell : kCells) {
    for (int64_t launch = 0; launch < kLaunches; ++launch) {
      absl::StatusOr<std::unique_ptr<RecordWriter>> writer = RecordWriter::Open(
          absl::StrCat(dir, "/", cell.trainer, "-x", cell.world_size, "-",
                       cell.scaling, "-", launch, ".jsonl"));
      if (!writer.ok()) return writer.status();
      absl::Status written = WriteRun(cell, launch, steps, random, **writer);
      if (!written.ok()) return written;
    }
  }
  return absl::OkStatus();
}

}  // namespace rankwise
