// Fits communication costs to the records of comm_bench:
//
//   bazel run //analysis/cost_model:fit_network -- --records=comm.jsonl
//       --json=network.json
//
// docs/cost_model.md describes the method and the files.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/runs/run_trace.h"
#include "analysis/text/program.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, records, "",
          "records of comm_bench (--record): a file, or a folder of *.jsonl of "
          "several world sizes");
ABSL_FLAG(
    std::string, backend, "",
    "fit the runs over this backend; required if the records have several");
ABSL_FLAG(std::string, json, "", "file to write the network model to");
ABSL_FLAG(std::string, astra_sim, "",
          "file to write the network to as ASTRA-sim's analytical network "
          "takes it (YAML)");
ABSL_FLAG(int64_t, npus, 0,
          "NPUs of --astra_sim's ring; if 0, the largest measured world size");
ABSL_FLAG(double, message_bytes, 1 << 20,
          "message size at which the line of --astra_sim and of the flags for "
          "//parallel/pipeline:show equals the measurement");

namespace rankwise {
namespace {

absl::Status CheckFlags() {
  const double message_bytes = absl::GetFlag(FLAGS_message_bytes);
  const int64_t npus = absl::GetFlag(FLAGS_npus);
  if (absl::GetFlag(FLAGS_records).empty()) {
    return absl::InvalidArgumentError(
        "--records: must name what comm_bench wrote with --record=FILE");
  }
  if (!(message_bytes >= 0 && message_bytes <= 1e15)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--message_bytes=", message_bytes, ": must lie between 0 and 1e15"));
  }
  if (npus < 0 || npus > 1 << 30) {
    return absl::InvalidArgumentError(
        absl::StrCat("--npus=", npus, ": must lie between 0 and ", 1 << 30));
  }
  if (npus == 1) {
    return absl::InvalidArgumentError(
        "--npus=1: ASTRA-sim's networks have at least 2");
  }
  if (npus > 0 && absl::GetFlag(FLAGS_astra_sim).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--npus=", npus, ": only for --astra_sim=FILE"));
  }
  return absl::OkStatus();
}

// Prints excluded rows to the standard error.
absl::StatusOr<NetworkModel> FitRecords(const std::string& records) {
  const absl::StatusOr<std::vector<RunTrace>> runs = LoadRuns(records);
  if (!runs.ok()) return absl::InvalidArgumentError(runs.status().message());
  for (const std::string& line : TornLines(*runs)) {
    std::cerr << "Left out: " << line << ".\n";
  }
  std::vector<std::string> left_out;
  absl::StatusOr<NetworkModel> network =
      FitNetwork(*runs, &left_out, {.backend = absl::GetFlag(FLAGS_backend)});
  for (const std::string& what : left_out) {
    std::cerr << "left out: " << what << "\n";
  }
  if (network.ok()) return network;
  const std::string why =
      absl::StrCat("--records=", records, ": ", network.status().message());
  if (absl::IsInvalidArgument(network.status()))  // several backends
    return absl::InvalidArgumentError(why + ", by --backend=NAME");
  return absl::FailedPreconditionError(why);
}

int64_t LargestWorldSize(const NetworkModel& network) {
  int64_t largest = 2;
  for (const auto* collectives :
       {&network.collectives, &network.across_hosts}) {
    for (const CollectiveCosts& costs : *collectives) {
      largest = std::max(largest, costs.curves.back().world_size);
    }
  }
  return largest;
}

absl::Status WriteAstraSim(const NetworkModel& network,
                           const std::string& path) {
  const int64_t npus = absl::GetFlag(FLAGS_npus);
  ASSIGN_OR_RETURN(const MessageLine line,
                   LineOfMessages(network, absl::GetFlag(FLAGS_message_bytes)));
  ASSIGN_OR_RETURN(
      const std::string text,
      AstraSimNetwork(line, npus > 0 ? npus : LargestWorldSize(network)));
  return ReplaceFile(path, text);
}

void PrintShowFlags(const NetworkModel& network) {
  const double bytes = absl::GetFlag(FLAGS_message_bytes);
  const auto line = LineOfMessages(network, bytes);
  if (!line.ok()) return;
  std::cout << "\nlink of //parallel/pipeline:show, from " << line->collective
            << ":\n  " << ShowFlags(*line, bytes) << "\n";
}

absl::Status Run() {
  RETURN_IF_ERROR(CheckFlags());
  ASSIGN_OR_RETURN(const NetworkModel network,
                   FitRecords(UserPath(absl::GetFlag(FLAGS_records))));
  std::cout << NetworkText(network);
  PrintShowFlags(network);
  if (const std::string json = UserPath(absl::GetFlag(FLAGS_json));
      !json.empty()) {
    RETURN_IF_ERROR(ReplaceFile(json, NetworkToJson(network)));
    std::cout << "\nnetwork model: " << json << "\n";
  }
  if (const std::string astra_sim = UserPath(absl::GetFlag(FLAGS_astra_sim));
      !astra_sim.empty()) {
    RETURN_IF_ERROR(WriteAstraSim(network, astra_sim));
    std::cout << "\nfor ASTRA-sim: " << astra_sim << "\n";
  }
  return absl::OkStatus();
}

constexpr char kUsage[] =
    "fits communication costs, by size and world size, to the records of "
    "comm_bench\n  --records=FILE_OR_FOLDER [--json=network.json "
    "--astra_sim=network.yml --message_bytes=65536]";

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::RunProgram({"fit_network", rankwise::kUsage,
                               "analysis/cost_model/", "--records=comm.jsonl"},
                              argc, argv, rankwise::Run);
}
