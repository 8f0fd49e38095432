// Measures collectives over sizes:
//
//   bazel run //comm_bench -- --nproc=2 --collectives=all
//
// docs/comm_bench.md describes the other binaries and the columns.

#include "absl/flags/flag.h"
#include "absl/strings/strip.h"
#include "comm_bench/flags/flags.h"
#include "comm_bench/question.h"
#include "comm_bench/run_rank.h"
#include "comm_bench/sweep/refuse.h"
#include "comm_bench/sweep/run_sweep.h"
#include "records/command_line.h"

ABSL_FLAG(bool, list, false, "describe each collective and exit");

// calls to measure
ABSL_FLAG(std::string, traffic, "",
          "all_to_all_v: file with a row of weights per rank");
ABSL_FLAG(double, traffic_skew, 0,
          "all_to_all_v: above 0, low ranks receive more");
ABSL_FLAG(int, group_size, 0, "ranks per group; if 0, one group of all ranks");
ABSL_FLAG(std::string, lines, "both",
          "lines along --axis to measure: one (alone), all (at once), both");

// method of measurement
ABSL_FLAG(int, in_flight, 1, "calls started before the first wait");
ABSL_FLAG(std::string, cache, "hot",
          "hot, or cold: overwritten before each iteration");
ABSL_FLAG(bool, check, true, "check every element of the result");
ABSL_FLAG(std::string, layer, "c10d",
          "c10d (PyTorch's), nccl, mpi (calls of nccl.h, mpi.h), or "
          "hierarchical (all_reduce within hosts, then across)");
ABSL_FLAG(bool, cuda_graph, false, "time replays of 20 rounds in a CUDA graph");
ABSL_FLAG(bool, registered, false, "buffers are registered with NCCL");
ABSL_FLAG(bool, nccl_choices, true, "read the algorithm from NCCL's log");
ABSL_FLAG(int, relaunch, 1, "number of launches of all ranks to compare");
ABSL_FLAG(int, launch, 0, "set by --relaunch: index of this launch");

namespace rankwise::comm_bench {
namespace {

void ReadOwn(BenchConfig& config, FlagChecks& checks) {
  config.list = absl::GetFlag(FLAGS_list);
  config.traffic_file = UserPath(absl::GetFlag(FLAGS_traffic));
  config.traffic_skew = absl::GetFlag(FLAGS_traffic_skew);
  checks.InRange("traffic_skew", config.traffic_skew, 0.0, 10.0);
  config.group_size = absl::GetFlag(FLAGS_group_size);
  checks.InRange("group_size", config.group_size, 0);
  config.lines = absl::GetFlag(FLAGS_lines);
  checks.OneOf("lines", config.lines, {"both", "one", "all"});
  MeasureConfig& measure = config.measure;
  measure.in_flight = absl::GetFlag(FLAGS_in_flight);
  checks.InRange("in_flight", measure.in_flight, 1, 1024);
  const std::string cache = absl::GetFlag(FLAGS_cache);
  checks.OneOf("cache", cache, {"hot", "cold"});
  measure.cold = cache == "cold";
  measure.check = absl::GetFlag(FLAGS_check);
  config.layer = absl::GetFlag(FLAGS_layer);
  checks.OneOf("layer", config.layer, {"c10d", "nccl", "mpi", "hierarchical"});
  measure.graph = absl::GetFlag(FLAGS_cuda_graph);
  measure.registered = absl::GetFlag(FLAGS_registered);
  config.nccl_choices = absl::GetFlag(FLAGS_nccl_choices);
  config.relaunch = absl::GetFlag(FLAGS_relaunch);
  checks.InRange("relaunch", config.relaunch, 1, 1000);
  measure.launch = absl::GetFlag(FLAGS_launch);
  checks.InRange("launch", measure.launch, 0);
}

// Rejects the former flag --mode and names the binary to run instead.
absl::Status CheckMode(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if (!absl::ConsumePrefix(&word, "-")) continue;
    absl::ConsumePrefix(&word, "-");
    if (word == "mode" && i + 1 < argc) {
      word = argv[i + 1];
    } else if (!absl::ConsumePrefix(&word, "mode=")) {
      continue;
    }
    if (word == "sweep")
      return Refuse("--mode=sweep: leave it out; no other is left here");
    for (const absl::string_view name :
         {"pairs", "new_group", "ladder", "overlap", "replay", "units"}) {
      if (word == name) {
        return Refuse("--mode=", name, ": is a binary of its own: ",
                      "bazel run //comm_bench:", name);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise::comm_bench

int main(int argc, char** argv) {
  namespace bench = rankwise::comm_bench;
  const absl::Status mode = bench::CheckMode(argc, argv);
  if (!mode.ok()) return bench::Report("comm_bench", mode);
  return bench::Answer(
      {.name = "comm_bench",
       .usage = "Measures collectives over sizes.\n"
                "  bazel run //comm_bench -- --nproc=2 --collectives=all\n"
                "  torchrun --no-python --nproc-per-node=2 "
                "bazel-bin/comm_bench/comm_bench\n"
                "Also :pairs, :new_group, :ladder, :overlap, :replay, :units.",
       .flags = {bench::ReadCalls, bench::ReadSizes, bench::ReadMesh,
                 bench::ReadOwn, bench::ReadSync, bench::ReadArrivals,
                 bench::ReadRows, bench::ReadPrecision, bench::ReadTimer,
                 bench::ReadSamples, bench::ReadFake, bench::ReadVirtualTime},
       .plan = bench::MakeSweepPlan,
       .measure = bench::RunSweep,
       .compares_with_hardware = true},
      argc, argv);
}
