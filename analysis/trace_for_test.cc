#include "analysis/trace_for_test.h"

#include "absl/strings/str_cat.h"
#include "records/config_hash.h"

namespace rankwise {
namespace {

RunRecord MakeRunRecord(const RunForTest& config, int64_t rank) {
  RunRecord run;
  run.run_id = config.run_id;
  run.binary = config.binary;
  run.flags = {{"batch_size", absl::StrCat(config.batch_size)}, {"lr", "0.1"}};
  if (config.binary != "single") {
    run.flags["nproc"] = absl::StrCat(config.world_size);
    run.flags["bucket_cap_mb"] = "25";
  }
  SetConfigHashes(&run);
  run.rank = rank;
  run.world_size = config.world_size;
  run.host = {"host", "A CPU", 8, 1LL << 33};
  run.devices = {"cpu"};
  run.versions.torch = "2.11.0";
  return run;
}

}  // namespace

RunTrace MakeRun(const RunForTest& config) {
  RunTrace run;
  run.source = config.run_id + ".jsonl";
  for (int64_t rank = 0; rank < config.world_size; ++rank) {
    RankTrace trace{MakeRunRecord(config, rank), {}};
    for (int64_t i = 1; i <= config.steps; ++i) {
      StepRecord step;
      step.rank = rank;
      step.step = i;
      step.epoch = 1;
      step.step_seconds = config.step_seconds;
      step.exposed_comm_seconds = 0.1 * config.step_seconds;
      step.data_wait_seconds = 0.05 * config.step_seconds;
      step.examples = config.batch_size;
      trace.steps.push_back(step);
    }
    run.ranks.push_back(trace);
  }
  return run;
}

}  // namespace rankwise
