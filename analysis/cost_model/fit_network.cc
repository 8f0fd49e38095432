// Fits what communication costs to the records of comm_bench:
//
//   bazel run //analysis/cost_model:fit_network -- --records=comm.jsonl
//       --json=network.json
//
// docs/cost_model.md says how, and what the files are.

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
#include "analysis/cost_model/network_text.h"
#include "analysis/runs/run_trace.h"
#include "analysis/text/program.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, records, "",
          "what comm_bench wrote with --record: a file, or a folder of *.jsonl "
          "of several world sizes");
ABSL_FLAG(std::string, backend, "",
          "fit the runs over this backend; needed where the records hold "
          "several");
ABSL_FLAG(std::string, json, "", "file to write the network model to");
ABSL_FLAG(std::string, astra_sim, "",
          "file to write the network to as ASTRA-sim's analytical network "
          "takes it (YAML)");
ABSL_FLAG(int64_t, npus, 0,
          "of --astra_sim: NPUs of the ring; 0: the largest measured world "
          "size");
ABSL_FLAG(double, message_bytes, 1 << 20,
          "of --astra_sim and of the flags for //parallel/pipeline:show: the "
          "size of messages that the line gives as measured");

namespace rankwise {
namespace {

struct Config {
  std::string records, backend, json, astra_sim;
  int64_t npus = 0;
  double message_bytes = 0;
};

absl::StatusOr<Config> ConfigFromFlags() {
  Config config;
  config.records = UserPath(absl::GetFlag(FLAGS_records));
  config.backend = absl::GetFlag(FLAGS_backend);
  config.json = UserPath(absl::GetFlag(FLAGS_json));
  config.astra_sim = UserPath(absl::GetFlag(FLAGS_astra_sim));
  config.npus = absl::GetFlag(FLAGS_npus);
  config.message_bytes = absl::GetFlag(FLAGS_message_bytes);
  if (config.records.empty()) {
    return absl::InvalidArgumentError(
        "--records: must name what comm_bench wrote with --record=FILE");
  }
  if (!(config.message_bytes >= 0 && config.message_bytes <= 1e15)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--message_bytes=", config.message_bytes,
                     ": must lie between 0 and 1e15"));
  }
  if (config.npus < 0 || config.npus > 1 << 30) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--npus=", config.npus, ": must lie between 0 and ", 1 << 30));
  }
  if (config.npus == 1) {
    return absl::InvalidArgumentError(
        "--npus=1: ASTRA-sim's networks have at least 2");
  }
  return config;
}

absl::StatusOr<std::vector<RunTrace>> LoadRecords(const Config& config) {
  ASSIGN_OR_RETURN(const auto files, RecordFilesIn(config.records));
  auto runs = LoadRunsFrom(files);
  if (!runs.ok()) return runs;
  for (const std::string& line : TornLines(*runs)) {
    std::cerr << "Left out: " << line << ".\n";
  }
  return runs;
}

int64_t LargestWorldSize(const NetworkModel& network) {
  int64_t largest = 2;
  for (const CollectiveCosts& costs : network.collectives) {
    largest = std::max(largest, costs.curves.back().world_size);
  }
  return largest;
}

absl::Status WriteAstraSim(const Config& config, const NetworkModel& network) {
  ASSIGN_OR_RETURN(const auto line,
                   LineOfMessages(network, config.message_bytes));
  ASSIGN_OR_RETURN(
      const auto text,
      AstraSimNetwork(
          line, config.npus > 0 ? config.npus : LargestWorldSize(network)));
  return ReplaceFile(config.astra_sim, text);
}

void PrintShowFlags(const Config& config, const NetworkModel& network) {
  const auto line = LineOfMessages(network, config.message_bytes);
  if (!line.ok()) return;
  std::cout << "\nlink of //parallel/pipeline:show, from " << line->collective
            << ":\n  " << ShowFlags(*line, config.message_bytes) << "\n";
}

absl::Status Run(const Config& config) {
  ASSIGN_OR_RETURN(const auto runs, LoadRecords(config));
  std::vector<std::string> left_out;
  const auto network = FitNetwork(runs, &left_out, {.backend = config.backend});
  for (const std::string& what : left_out) {
    std::cerr << "left out: " << what << "\n";
  }
  if (!network.ok()) {
    return absl::Status(network.status().code(),
                        absl::StrCat("--records=", config.records, ": ",
                                     network.status().message(),
                                     absl::IsInvalidArgument(network.status())
                                         ? ", by --backend=NAME"
                                         : ""));
  }
  std::cout << NetworkText(*network);
  PrintShowFlags(config, *network);
  if (!config.json.empty()) {
    RETURN_IF_ERROR(ReplaceFile(config.json, NetworkToJson(*network)));
    std::cout << "\nnetwork model: " << config.json << "\n";
  }
  if (!config.astra_sim.empty()) {
    RETURN_IF_ERROR(WriteAstraSim(config, *network));
    std::cout << "\nfor ASTRA-sim: " << config.astra_sim << "\n";
  }
  std::cout.flush();
  return std::cout
             ? absl::OkStatus()
             : absl::UnavailableError("writing to standard output failed");
}

constexpr char kUsage[] =
    "fits what communication costs, by size and world size, to the records of "
    "comm_bench\n  --records=FILE_OR_FOLDER [--json=network.json "
    "--astra_sim=network.yml --message_bytes=65536]";

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  rankwise::DescribeProgram(rankwise::kUsage, "analysis/cost_model/");
  const std::vector<char*> rest = rankwise::ParseFlags(argc, argv);
  const absl::Status no_rest =
      rankwise::RefuseArguments(rest, "--records=comm.jsonl");
  if (!no_rest.ok()) return rankwise::Complain("fit_network", no_rest);
  const absl::StatusOr<rankwise::Config> config = rankwise::ConfigFromFlags();
  if (!config.ok()) return rankwise::Complain("fit_network", config.status());
  const absl::Status status = rankwise::Run(*config);
  return status.ok()
             ? 0
             : rankwise::Complain("fit_network", status, rankwise::kFailed);
}
