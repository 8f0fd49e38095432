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
#include "analysis/cost_model/message_line.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/cost_model/network_text.h"
#include "analysis/program.h"
#include "analysis/run_trace.h"
#include "records/replace_file.h"
#include "records/user_path.h"

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
          "size of messages at which the line is taken");
ABSL_FLAG(int, max_segments, 3, "pieces of a curve, at most");
ABSL_FLAG(int, resamples, 300, "fits behind every interval");
ABSL_FLAG(uint64_t, seed, 0, "of the resampling");

namespace rankwise {
namespace {

struct Config {
  std::string records, backend, json, astra_sim;
  int64_t npus = 0;
  double message_bytes = 0;
  CostFitConfig fit;
};

template <typename T>
absl::Status CheckRange(const char* flag, T value, T low, T high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", value, ": must lie between ", low, " and ", high));
}

absl::StatusOr<Config> ConfigFromFlags() {
  Config config;
  config.records = UserPath(absl::GetFlag(FLAGS_records));
  config.backend = absl::GetFlag(FLAGS_backend);
  config.json = UserPath(absl::GetFlag(FLAGS_json));
  config.astra_sim = UserPath(absl::GetFlag(FLAGS_astra_sim));
  config.npus = absl::GetFlag(FLAGS_npus);
  config.message_bytes = absl::GetFlag(FLAGS_message_bytes);
  config.fit.max_segments = absl::GetFlag(FLAGS_max_segments);
  config.fit.resamples = absl::GetFlag(FLAGS_resamples);
  config.fit.seed = absl::GetFlag(FLAGS_seed);
  if (config.records.empty()) {
    return absl::InvalidArgumentError(
        "--records: must name what comm_bench wrote with --record=FILE");
  }
  for (const absl::Status& status :
       {CheckRange<int64_t>("npus", config.npus, 0, 1 << 30),
        CheckRange("message_bytes", config.message_bytes, 0.0, 1e15),
        CheckRange("max_segments", config.fit.max_segments, 1, 20),
        CheckRange("resamples", config.fit.resamples, 20, 100000)}) {
    if (!status.ok()) return status;
  }
  if (config.npus == 1) {
    return absl::InvalidArgumentError(
        "--npus=1: ASTRA-sim's networks have at least 2");
  }
  return config;
}

absl::StatusOr<std::vector<RunTrace>> LoadRecords(const Config& config) {
  const auto files = RecordFilesIn(config.records);
  if (!files.ok()) return files.status();
  auto runs = LoadRunsFrom(*files);
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
  const auto line = LineOfMessages(network, config.message_bytes);
  if (!line.ok()) return line.status();
  const auto text = AstraSimNetwork(
      *line, config.npus > 0 ? config.npus : LargestWorldSize(network));
  if (!text.ok()) return text.status();
  return ReplaceFile(config.astra_sim, *text);
}

void PrintShowFlags(const Config& config, const NetworkModel& network) {
  const auto line = LineOfMessages(network, config.message_bytes);
  if (!line.ok()) return;
  std::cout << "\nlink of //parallel/pipeline:show, from " << line->collective
            << ":\n  " << ShowFlags(*line, config.message_bytes) << "\n";
}

absl::Status Run(const Config& config) {
  const auto runs = LoadRecords(config);
  if (!runs.ok()) return runs.status();
  std::vector<std::string> left_out;
  const auto network =
      FitNetwork(*runs, config.fit, &left_out, {.backend = config.backend});
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
    const absl::Status status =
        ReplaceFile(config.json, NetworkToJson(*network));
    if (!status.ok()) return status;
    std::cout << "\nnetwork model: " << config.json << "\n";
  }
  if (!config.astra_sim.empty()) {
    const absl::Status status = WriteAstraSim(config, *network);
    if (!status.ok()) return status;
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
