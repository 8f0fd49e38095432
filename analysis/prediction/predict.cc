// Predicts the step of recorded training at other world sizes. `bazel run
// //analysis:predict -- --help`; docs/prediction.md.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/prediction.h"
#include "analysis/prediction/recordings.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/run_trace.h"
#include "analysis/text/program.h"
#include "records/command_line.h"
#include "records/text.h"
#include "records/text_file.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, records, "",
          "a study's folder, or a file of records: *.jsonl of the trainers, "
          "and of comm_bench unless --link is given");
ABSL_FLAG(std::string, world_sizes, "8,64,1024", "ranks to predict");
ABSL_FLAG(std::string, link, "",
          "communication cost: ALPHA_US:BETA_NS_PER_BYTE of every call, "
          "or a network's file (docs/cost_model.md); if empty, fitted to the "
          "records of comm_bench");
ABSL_FLAG(int64_t, ranks_per_host, 0,
          "ranks on each host, in order of rank; if 0, all on one host");
ABSL_FLAG(
    std::string, inter_host_link, "",
    "with --ranks_per_host: cost of a message between two hosts, "
    "ALPHA_US:BETA_NS_PER_BYTE (8 ns per byte for 1 Gbit/s); if empty, from "
    "--link's file or comm_bench's records");
ABSL_FLAG(std::string, all_reduce, "flat",
          "how ddp's all-reduces cross hosts: flat, one ring of all ranks, or "
          "hierarchical, within each host and then across");
ABSL_FLAG(int64_t, fit_up_to, 0,
          "above 0: predict the recorded world sizes above it from those up to "
          "it, and print the errors");
ABSL_FLAG(std::string, memory_limit, "",
          "memory limit of a rank, such as 16GB or 500MB; if empty, none");
ABSL_FLAG(int64_t, global_batch, 0,
          "global batch in examples per step; if 0, as many per rank as "
          "recorded (with --recommend: times the ranks)");
ABSL_FLAG(bool, recommend, false,
          "print the fastest layouts of each world size: ddp in other buckets, "
          "pipelines in other schedules, replicas of them");
ABSL_FLAG(int64_t, warmup_steps, 10, "steps to skip at the start of every run");

namespace rankwise {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

absl::Status Bad(const std::string& flag, const std::string& value,
                 const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": expected ", expected));
}

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_records).empty()) {
    return Bad("records", "", "a study's folder, or a file of records");
  }
  const std::pair<const char*, int64_t> counts[] = {
      {"ranks_per_host", absl::GetFlag(FLAGS_ranks_per_host)},
      {"fit_up_to", absl::GetFlag(FLAGS_fit_up_to)},
      {"global_batch", absl::GetFlag(FLAGS_global_batch)},
      {"warmup_steps", absl::GetFlag(FLAGS_warmup_steps)}};
  for (const auto& [flag, value] : counts) {
    if (value < 0) return Bad(flag, absl::StrCat(value), "0 or more");
  }
  const std::string all_reduce = absl::GetFlag(FLAGS_all_reduce);
  if (all_reduce != "flat" && all_reduce != "hierarchical") {
    return Bad("all_reduce", all_reduce, "flat or hierarchical");
  }
  if (absl::GetFlag(FLAGS_fit_up_to) > 0 && absl::GetFlag(FLAGS_recommend)) {
    return absl::InvalidArgumentError(
        "--fit_up_to with --recommend: the one looks at recorded world sizes, "
        "the other at new ones; give one of them");
  }
  return absl::OkStatus();
}

// Returns the folder for further records.
std::string FolderOf(const std::string& path) {
  const std::filesystem::path records(path);
  return (std::filesystem::is_directory(records) ? records
                                                 : records.parent_path())
      .string();
}

struct Link {
  double alpha_us = 0;
  double beta_ns = 0;
};

// Parses ALPHA_US:BETA_NS_PER_BYTE; nullopt if `text` is not two numbers.
std::optional<Link> LinkOf(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Link link;
  const bool is_link = parts.size() == 2 &&
                       absl::SimpleAtod(parts[0], &link.alpha_us) &&
                       absl::SimpleAtod(parts[1], &link.beta_ns);
  return is_link ? std::make_optional(link) : std::nullopt;
}

bool IsPossible(const Link& link) {
  return link.alpha_us >= 0 && link.beta_ns >= 0 &&
         std::isfinite(link.alpha_us + link.beta_ns);
}

// `link` is ALPHA_US:BETA_NS_PER_BYTE, or a file.
absl::StatusOr<NetworkModel> NetworkOf(const std::string& link) {
  if (const std::optional<Link> stated = LinkOf(link)) {
    if (IsPossible(*stated))
      return FlatNetwork(stated->alpha_us * 1e-6, stated->beta_ns * 1e-9);
    return Bad("link", link, "times of 0 or more");
  }
  const absl::StatusOr<std::string> text = ReadTextFile(UserPath(link));
  if (absl::IsNotFound(text.status())) {
    return Bad("link", link,
               "ALPHA_US:BETA_NS_PER_BYTE, as in 5:0.1, or a network's file");
  }
  absl::StatusOr<NetworkModel> network =
      text.ok() ? NetworkFromJson(*text) : text.status();
  if (network.ok()) return network;
  return absl::InvalidArgumentError(
      absl::StrCat("--link=", link, ": ", network.status().message()));
}

// Fits the records of comm_bench with at most `most_ranks`; 0 for no limit.
absl::StatusOr<NetworkModel> FittedNetwork(const std::vector<RunTrace>& runs,
                                           const std::string& folder,
                                           int64_t most_ranks) {
  absl::StatusOr<NetworkModel> network =
      FitNetwork(runs, nullptr, {.most_ranks = most_ranks});
  if (network.ok()) return network;
  return absl::FailedPreconditionError(absl::StrCat(
      "the cost of communication is not known: ", network.status().message(),
      "; give --link, or measure it: bazel run //comm_bench -- --nproc=2 "
      "--collectives=all_reduce,ping_pong --record=",
      folder, "/comm_bench-x2.jsonl"));
}

// Adds the link between hosts stated by --inter_host_link.
absl::StatusOr<NetworkModel> WithInterHostLink(NetworkModel network) {
  const std::string text = absl::GetFlag(FLAGS_inter_host_link);
  if (text.empty()) return network;
  const std::optional<Link> link = LinkOf(text);
  if (!link.has_value() || !IsPossible(*link)) {
    return Bad("inter_host_link", text,
               "ALPHA_US:BETA_NS_PER_BYTE, times of 0 or more, as in 50:8");
  }
  network.across_hosts =
      LinkAcrossHosts(link->alpha_us * 1e-6, link->beta_ns * 1e-9);
  return network;
}

// Applies the flags that describe hosts.
Layout OverHosts(Layout layout) {
  layout.ranks_per_host = absl::GetFlag(FLAGS_ranks_per_host);
  layout.hierarchical = absl::GetFlag(FLAGS_all_reduce) == "hierarchical";
  return layout;
}

// Returns the largest batch per rank of ddp, or of a pipeline's ranks.
int64_t RecordedBatch(absl::Span<const Cell> cells) {
  double batch = 0;
  for (const Cell& cell : cells) {
    if (cell.run.binary == "ddp") batch = std::max(batch, cell.rank_batch);
  }
  for (const Cell& cell : cells) {
    if (batch == 0) batch = cell.rank_batch;
  }
  return std::llround(batch);
}

absl::StatusOr<std::string> PredictSizes(RecordedPredictor& predictor,
                                         const std::vector<int64_t>& sizes,
                                         int64_t batch_per_rank,
                                         int64_t global_batch) {
  // Weak scaling's efficiency (with a global batch, strong scaling's) is
  // relative to one rank with this batch (docs/metrics.md).
  const Layout one = {.micro_batch =
                          global_batch > 0 ? global_batch : batch_per_rank};
  const auto base = predictor.Predict(one);
  std::vector<Prediction> predictions;
  std::string refusals;
  if (!base.ok()) {
    refusals =
        absl::StrCat("No efficiency relative to one rank with batch ",
                     one.micro_batch, ": ", base.status().message(), ".\n");
  }
  for (int64_t size : sizes) {
    const Layout layout =
        OverHosts({.dp = size,
                   .micro_batch = global_batch > 0 ? global_batch / size
                                                   : batch_per_rank});
    if (global_batch % size != 0) {
      absl::StrAppend(&refusals, "Not predicted: ", layout.Name(),
                      ": a global batch of ", global_batch,
                      " does not divide by ", size, ".\n");
      continue;
    }
    ASSIGN_OR_RETURN(predictions.emplace_back(), predictor.Predict(layout));
  }
  if (predictions.empty()) return absl::InvalidArgumentError(refusals);
  return absl::StrCat(
      PredictionTable(predictions, base.ok() ? base->examples_per_second : 0),
      refusals);
}

absl::StatusOr<std::string> RecommendSizes(RecordedPredictor& predictor,
                                           const std::vector<int64_t>& sizes,
                                           int64_t batch_per_rank,
                                           int64_t global_batch,
                                           int64_t memory_limit) {
  std::string text;
  for (int64_t size : sizes) {
    const RecommendConfig config = {
        size, global_batch > 0 ? global_batch : size * batch_per_rank,
        static_cast<double>(memory_limit), OverHosts({})};
    absl::StrAppend(&text, "\n", Counted(size, "rank"), ", global batch ",
                    config.global_batch, ": ");
    const auto recommendation = Recommend(predictor, config);
    absl::StrAppend(
        &text, recommendation.ok()
                   ? RecommendationText(*recommendation)
                   : std::string(recommendation.status().message()) + "\n");
  }
  return text;
}

absl::StatusOr<std::string> PredictedText() {
  RETURN_IF_ERROR(CheckFlags());
  ASSIGN_OR_RETURN(const auto sizes,
                   ParseNumbers("world_sizes", absl::GetFlag(FLAGS_world_sizes),
                                1, kMostRanks));
  int64_t memory_limit = 0;
  if (const std::string text = absl::GetFlag(FLAGS_memory_limit);
      !text.empty()) {
    ASSIGN_OR_RETURN(memory_limit, ParseMemory("memory_limit", text));
  }
  const std::string records = UserPath(absl::GetFlag(FLAGS_records));
  const std::string link = absl::GetFlag(FLAGS_link);
  const int64_t fit_up_to = absl::GetFlag(FLAGS_fit_up_to);
  const int64_t global_batch = absl::GetFlag(FLAGS_global_batch);
  ASSIGN_OR_RETURN(const auto runs, LoadRecordings(records));
  ASSIGN_OR_RETURN(auto network,
                   link.empty()
                       ? FittedNetwork(runs, FolderOf(records), fit_up_to)
                       : NetworkOf(link));
  ASSIGN_OR_RETURN(network, WithInterHostLink(std::move(network)));
  const ThroughputConfig config{.warmup_steps =
                                    absl::GetFlag(FLAGS_warmup_steps)};
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, config, &left_out);
  for (const std::string& reason : left_out) {
    std::cerr << "Left out: " << reason << ".\n";
  }
  if (fit_up_to > 0) {
    ASSIGN_OR_RETURN(const auto score,
                     ScorePredictions(runs, cells, fit_up_to, network, config));
    return ScoreTable(score);
  }
  ASSIGN_OR_RETURN(auto predictor,
                   RecordedPredictor::Create(runs, network, config));
  const int64_t batch = RecordedBatch(cells);
  return absl::GetFlag(FLAGS_recommend)
             ? RecommendSizes(predictor, sizes, batch, global_batch,
                              memory_limit)
             : PredictSizes(predictor, sizes, batch, global_batch);
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const std::string text, PredictedText());
  std::cout << text << std::flush;
  return absl::OkStatus();
}

constexpr char kUsage[] =
    "Predicts the step time of a recorded training at other world sizes.\n"
    "  bazel run //analysis:predict -- --records=results/TIME "
    "--world_sizes=8,64,1024\n"
    "  ... --link=5:0.1          other communication: 5 us and 10 GB/s\n"
    "  ... --ranks_per_host=8 --inter_host_link=50:0.8   several hosts\n"
    "  ... --fit_up_to=2         errors of predictions\n"
    "  ... --recommend --memory_limit=16GB";

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::RunProgram(
      {"predict", rankwise::kUsage, "analysis/prediction/",
       "--records=results/TIME"},
      argc, argv, rankwise::Run);
}
