// A fake trainer for the tests of the study: accepts the trainers' flags and
// writes the records of a run without training. --model selects its behavior.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "records/record.h"
#include "records/record_writer.h"
#include "records/run_origin.h"

ABSL_FLAG(
    std::string, model, "good",
    "good; bad: fails at once; crashes: is killed half-way, on 2 ranks only; "
    "stops: early, but with exit code 0; once: fails only the first time; "
    "hangs: half-way, the first time that two runs are complete; forgets: its "
    "memory; grows: its memory, by 1 MB a step; swells: its memory, by 200 MB, "
    "when it is no probe; greedy: fails above a batch of 300; slow: hangs "
    "above "
    "it");
ABSL_FLAG(int64_t, nproc, 1, "");
ABSL_FLAG(int64_t, batch_size, 64, "");
ABSL_FLAG(std::string, schedule, "", "");
ABSL_FLAG(int64_t, pp, 0, "");
ABSL_FLAG(int64_t, dp, 0, "");
ABSL_FLAG(int64_t, cp, 1, "");
ABSL_FLAG(int64_t, tp, 1, "");
ABSL_FLAG(int64_t, chunks, 1, "");
ABSL_FLAG(int64_t, microbatches, 1, "");
ABSL_FLAG(int64_t, max_steps, 60, "");
ABSL_FLAG(int64_t, epochs, 5, "");
ABSL_FLAG(int64_t, train_size, 0, "");
ABSL_FLAG(int64_t, threads, 1, "");
ABSL_FLAG(uint64_t, seed, 0, "");
ABSL_FLAG(bool, eval, true, "");
ABSL_FLAG(std::string, record, "", "");
ABSL_FLAG(bool, memory, false, "");
ABSL_FLAG(bool, profile, false, "");
ABSL_FLAG(bool, skip_communication, false, "");
ABSL_FLAG(int64_t, traffic_steps, 0, "");
// Flags of comm_bench.
ABSL_FLAG(double, max_seconds, 0, "");
ABSL_FLAG(std::string, timing, "", "");
ABSL_FLAG(std::string, collectives, "", "");
ABSL_FLAG(std::string, min_bytes, "", "");
ABSL_FLAG(std::string, max_bytes, "", "");

namespace rankwise {
namespace {

RunRecord MakeRunRecord(const std::string& binary, const std::string& id,
                        int64_t rank) {
  RunRecord run;
  run.run_id = id;
  run.binary = binary;
  run.flags = {{"batch_size", absl::StrCat(absl::GetFlag(FLAGS_batch_size))},
               {"seed", absl::StrCat(absl::GetFlag(FLAGS_seed))},
               {"model", absl::GetFlag(FLAGS_model)},
               {"skip_communication",
                absl::GetFlag(FLAGS_skip_communication) ? "true" : "false"},
               {"profile", absl::GetFlag(FLAGS_profile) ? "true" : "false"}};
  if (binary == "pipeline") {
    run.flags["schedule"] = absl::GetFlag(FLAGS_schedule);
    run.flags["microbatches"] = absl::StrCat(absl::GetFlag(FLAGS_microbatches));
  }
  SetConfigHashes(&run);
  run.rank = rank;
  run.world_size = absl::GetFlag(FLAGS_nproc);
  if (binary == "tensor_parallel" || absl::GetFlag(FLAGS_tp) > 1) {
    run.mesh = {{"tp", run.world_size}};
  }
  run.host = CollectHostInfo();
  run.devices = {"cpu"};
  run.threads_per_rank = absl::GetFlag(FLAGS_threads);
  run.versions.torch = "2.11.0";
  run.source_hash = "fake";
  run.example = "image";
  return run;
}

// 1 ms per example; 25 % more for communication on several ranks.
StepRecord MakeStep(int64_t rank, int64_t step) {
  StepRecord record;
  record.rank = rank;
  record.step = step;
  record.epoch = 1;
  record.examples =
      absl::GetFlag(FLAGS_batch_size) * absl::GetFlag(FLAGS_microbatches);
  record.step_seconds = 1e-3 * static_cast<double>(record.examples);
  const bool communicates = absl::GetFlag(FLAGS_nproc) > 1 &&
                            !absl::GetFlag(FLAGS_skip_communication);
  if (communicates) record.step_seconds *= 1.25;
  record.exposed_comm_seconds = 0.08 * record.step_seconds;
  return record;
}

// One pipeline over all ranks: in the schedule during the whole step, busy for
// half of it, as predicted.
ScheduleRecord MakeSchedule(const StepRecord& step) {
  ScheduleRecord record;
  record.rank = record.pipeline_rank = step.rank;
  record.step = step.step;
  record.schedule = absl::GetFlag(FLAGS_schedule);
  record.pipeline_size = absl::GetFlag(FLAGS_nproc);
  record.stages = record.pipeline_size * absl::GetFlag(FLAGS_chunks);
  record.micro_batches = absl::GetFlag(FLAGS_microbatches);
  record.schedule_seconds = record.span_seconds = step.step_seconds;
  record.busy_seconds = 0.5 * step.step_seconds;
  record.predicted_seconds = step.step_seconds;
  record.predicted_span_bubble = record.predicted_wall_bubble = 0.5;
  return record;
}

bool WriteSchedules(const std::vector<StepRecord>& steps,
                    RecordWriter& writer) {
  for (const StepRecord& step : steps) {
    if (!writer.Write(MakeSchedule(step)).ok()) return false;
  }
  return true;
}

// 100 MB, 1 MB per example, and 1 MB per preceding rank.
MemoryRecord MakeMemory(int64_t rank) {
  MemoryRecord memory;
  memory.rank = rank;
  int64_t megabytes = 100 + absl::GetFlag(FLAGS_batch_size) + rank;
  const std::string model = absl::GetFlag(FLAGS_model);
  if (model == "grows") megabytes += absl::GetFlag(FLAGS_max_steps);
  const bool probe = absl::StrContains(absl::GetFlag(FLAGS_record), "/probes/");
  if (model == "swells" && !probe) megabytes += 200;
  memory.peak_host_bytes = 1000000 * megabytes;
  return memory;
}

// Two sizes of an all_reduce: 1 ms and 2 ms.
std::vector<CollectiveRecord> MakeCollectives(int64_t rank) {
  std::vector<CollectiveRecord> records;
  for (int64_t bytes : {8, 1000000}) {
    CollectiveRecord record;
    record.rank = rank;
    record.collective = "all_reduce";
    record.bytes = bytes;
    record.count = bytes / 4;
    record.dtype = "float32";
    record.op = "sum";
    record.seconds = std::vector<double>(9, 1e-3 + 1e-9 * bytes);
    record.start_seconds = std::vector<double>(9, 0.0);
    records.push_back(record);
  }
  return records;
}

bool WriteBenchmark(RecordWriter& writer, int64_t rank) {
  for (const CollectiveRecord& record : MakeCollectives(rank)) {
    if (!writer.Write(record).ok()) return false;
  }
  return true;
}

bool WriteTraining(const std::string& binary, RecordWriter& writer,
                   int64_t rank, int64_t steps) {
  std::vector<StepRecord> records;
  for (int64_t step = 1; step <= steps; ++step) {
    records.push_back(MakeStep(rank, step));
  }
  if (!writer.Write(records).ok()) return false;
  const bool cut = binary == "pipeline" || binary == "model_parallel";
  if (cut && !WriteSchedules(records, writer)) return false;
  return absl::GetFlag(FLAGS_model) == "forgets" ||
         writer.Write(MakeMemory(rank)).ok();
}

bool WriteRun(const std::string& binary, int64_t steps) {
  auto writer = RecordWriter::Open(absl::GetFlag(FLAGS_record));
  if (!writer.ok()) return false;
  const std::string id = NewRunId(absl::Now());
  for (int64_t rank = 0; rank < absl::GetFlag(FLAGS_nproc); ++rank) {
    if (!(*writer)->Write(MakeRunRecord(binary, id, rank)).ok()) return false;
    const bool written = binary == "comm_bench"
                             ? WriteBenchmark(**writer, rank)
                             : WriteTraining(binary, **writer, rank, steps);
    if (!written) return false;
  }
  return true;
}

// Counts the files of finished runs next to this one's.
int64_t FinishedRuns() {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(absl::GetFlag(FLAGS_record)).parent_path())) {
    count += entry.path().extension() == ".jsonl";
  }
  return count;
}

// Returns true only for the first call by any process of this study.
bool IsFirst() {
  const auto folder =
      std::filesystem::path(absl::GetFlag(FLAGS_record)).parent_path();
  const bool first = !std::filesystem::exists(folder / "first");
  std::ofstream(folder / "first") << "x";
  return first;
}

int Main(const std::string& binary) {
  const std::string model = absl::GetFlag(FLAGS_model);
  const int64_t steps = absl::GetFlag(FLAGS_max_steps);
  if (model == "greedy" && absl::GetFlag(FLAGS_batch_size) > 300) return 4;
  while (model == "slow" && absl::GetFlag(FLAGS_batch_size) > 300) pause();
  if (model == "bad" || (model == "once" && IsFirst())) {
    std::fprintf(stderr, "%s: a reason to fail\n", binary.c_str());
    return 3;
  }
  if (model == "hangs" && FinishedRuns() == 2 && IsFirst()) {
    WriteRun(binary, steps / 2);
    std::printf("hanging as process %d\n", getpid());
    std::fflush(stdout);
    while (true) pause();
  }
  if (model == "crashes" && absl::GetFlag(FLAGS_nproc) == 2) {
    WriteRun(binary, steps / 2);
    raise(SIGKILL);
  }
  return WriteRun(binary, model == "stops" ? 3 : steps) ? 0 : 1;
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  // Under mpirun, rank 0 writes the records of all ranks.
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (size != nullptr) absl::SetFlag(&FLAGS_nproc, std::atoi(size));
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank != nullptr && std::atoi(rank) > 0) return 0;
  return rankwise::Main(std::filesystem::path(argv[0]).filename().string());
}
