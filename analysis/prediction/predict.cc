// What the training that was recorded would take at other world sizes.
// `bazel run //analysis:predict -- --help`; docs/prediction.md.

#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/prediction/prediction.h"
#include "analysis/text/program.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(
    std::string, records, "",
    "a study's folder, or a file of records: *.jsonl of the trainers, and "
    "of comm_bench where --link is not given");
ABSL_FLAG(std::string, world_sizes, "8,64,1024", "ranks to predict");
ABSL_FLAG(std::string, link, "",
          "what communication costs: ALPHA_US:BETA_NS_PER_BYTE of every call, "
          "or a network's file (docs/cost_model.md); empty: fitted to the "
          "records of comm_bench");
ABSL_FLAG(int64_t, fit_up_to, 0,
          "above 0: predict the recorded world sizes above it from those up to "
          "it, and say how far off that is");
ABSL_FLAG(std::string, memory_limit, "",
          "of a rank, such as 16GB or 500MB; empty: none");
ABSL_FLAG(int64_t, global_batch, 0,
          "examples a step of all ranks together; 0: as many per rank as were "
          "recorded (with --recommend: times the ranks)");
ABSL_FLAG(bool, recommend, false,
          "the fastest layouts of each world size: ddp in other buckets, "
          "pipelines in other schedules, replicas of them");
ABSL_FLAG(int64_t, warmup_steps, 10,
          "steps at the start of every run that are left out");

namespace rankwise {
namespace {

constexpr char kUsage[] =
    "Predicts the step time of a recorded training at other world sizes.\n"
    "  bazel run //analysis:predict -- --records=results/TIME "
    "--world_sizes=8,64,1024\n"
    "  ... --link=5:0.1          other communication: 5 us and 10 GB/s\n"
    "  ... --fit_up_to=2         how right the predictions are\n"
    "  ... --recommend --memory_limit=16GB";

absl::Status Predict() {
  PredictFlags flags;
  flags.records = absl::GetFlag(FLAGS_records);
  flags.world_sizes = absl::GetFlag(FLAGS_world_sizes);
  flags.link = absl::GetFlag(FLAGS_link);
  flags.fit_up_to = absl::GetFlag(FLAGS_fit_up_to);
  flags.memory_limit = absl::GetFlag(FLAGS_memory_limit);
  flags.global_batch = absl::GetFlag(FLAGS_global_batch);
  flags.recommend = absl::GetFlag(FLAGS_recommend);
  flags.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  ASSIGN_OR_RETURN(const std::string text, RunPredict(flags));
  std::cout << text << std::flush;
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  rankwise::DescribeProgram(rankwise::kUsage, "analysis/prediction/");
  const std::vector<char*> arguments = rankwise::ParseFlags(argc, argv);
  absl::Status status =
      rankwise::RefuseArguments(arguments, "--records=results/TIME");
  if (status.ok()) status = rankwise::Predict();
  return status.ok() ? 0 : rankwise::Complain("predict", status);
}
