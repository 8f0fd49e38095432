// Replays a trainer's communication, with and without the gaps in which it
// computed.

#include "comm_bench/modes/replay.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/flags/flags.h"
#include "comm_bench/output/output.h"
#include "comm_bench/question.h"
#include "comm_bench/sweep/run_sweep.h"
#include "records/command_line.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, replay, "",
          "file of the trainer's records, written with --traffic_steps");

namespace rankwise::comm_bench {
namespace {

void ReadOwn(BenchConfig& config, FlagChecks&) {
  config.replay_file = UserPath(absl::GetFlag(FLAGS_replay));
}

absl::Status RunReplay(const BenchConfig& config, const Plan& plan,
                       const BenchRank& rank) {
  if (!config.axis.empty()) {
    rank.output->Print(absl::StrCat(
        "# replays only the communication of groups along ", config.axis,
        "; the trainer's columns cover all of its communication\n"));
  }
  ASSIGN_OR_RETURN(const ReplayResult result,
                   Replay(*rank.comm, *rank.control, *plan.recorded,
                          config.iterations_or(20), rank.stop));
  RETURN_IF_ERROR(rank.output->Write(result.own_gaps));
  RETURN_IF_ERROR(rank.output->Write(result.own_back_to_back));
  rank.output->Print(FormatReplay(result));
  if (result.stopped) return Interrupted(result.iterations, "iteration");
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise::comm_bench

int main(int argc, char** argv) {
  namespace bench = rankwise::comm_bench;
  return bench::Answer(
      {.name = "replay",
       .usage =
           "Repeats the communication that a trainer recorded.\n"
           "  bazel run //trainers:ddp -- --nproc=2 --traffic_steps=2 "
           "--record=ddp.jsonl\n"
           "  bazel run //comm_bench:replay -- --nproc=2 --replay=ddp.jsonl\n",
       .flags = {bench::ReadSamples, bench::ReadMesh, bench::ReadOwn},
       .plan = bench::MakeReplayPlan,
       .measure = bench::RunReplay},
      argc, argv);
}
