#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
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
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

absl::Status Bad(const std::string& flag, const std::string& value,
                 const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": expected ", expected));
}

absl::StatusOr<std::vector<int64_t>> ParseWorldSizes(const std::string& text) {
  std::vector<int64_t> sizes;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1 || size > kMostRanks) {
      return Bad("world_sizes", text,
                 "numbers of ranks from 1 to 1048576, as "
                 "in 8,64,1024");
    }
    sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

absl::Status CheckFlags(const PredictFlags& flags) {
  if (flags.records.empty()) {
    return Bad("records", "", "a study's folder, or a file of records");
  }
  const std::pair<const char*, int64_t> counts[] = {
      {"fit_up_to", flags.fit_up_to},
      {"global_batch", flags.global_batch},
      {"warmup_steps", flags.warmup_steps}};
  for (const auto& [flag, value] : counts) {
    if (value < 0) return Bad(flag, absl::StrCat(value), "0 or more");
  }
  if (flags.fit_up_to > 0 && flags.recommend) {
    return absl::InvalidArgumentError(
        "--fit_up_to with --recommend: the one looks at recorded world sizes, "
        "the other at new ones; give one of them");
  }
  return absl::OkStatus();
}

// The runs of a file or folder, with the pretended ranks of the backend fake.
absl::StatusOr<std::vector<RunTrace>> LoadRecords(const std::string& path) {
  auto runs = LoadRuns(path);
  if (!runs.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--records: ", runs.status().message()));
  }
  for (const std::string& line : TornLines(*runs)) {
    std::cerr << "Left out: " << line << ".\n";
  }
  for (RunTrace& run : *runs) run = MirrorFakeRanks(std::move(run));
  return runs;
}

// Where more records would be written.
std::string FolderOf(const std::string& path) {
  const std::filesystem::path records(path);
  return (std::filesystem::is_directory(records) ? records
                                                 : records.parent_path())
      .string();
}

// ALPHA_US:BETA_NS_PER_BYTE, or a file.
absl::StatusOr<NetworkModel> NetworkOf(const std::string& link) {
  const std::vector<std::string> parts = absl::StrSplit(link, ':');
  double alpha_us = 0, beta_ns = 0;
  if (parts.size() == 2 && absl::SimpleAtod(parts[0], &alpha_us) &&
      absl::SimpleAtod(parts[1], &beta_ns)) {
    if (alpha_us >= 0 && beta_ns >= 0 && std::isfinite(alpha_us + beta_ns)) {
      return FlatNetwork(alpha_us * 1e-6, beta_ns * 1e-9);
    }
    return Bad("link", link, "times of 0 or more");
  }
  std::ifstream file(UserPath(link));
  if (!file) {
    return Bad("link", link,
               "ALPHA_US:BETA_NS_PER_BYTE, as in 5:0.1, or a network's file");
  }
  std::ostringstream text;
  text << file.rdbuf();
  absl::StatusOr<NetworkModel> network = NetworkFromJson(text.str());
  if (network.ok()) return network;
  return absl::InvalidArgumentError(
      absl::StrCat("--link=", link, ": ", network.status().message()));
}

// From the records of comm_bench at no more than `most_ranks`; 0: at any.
absl::StatusOr<NetworkModel> FittedNetwork(const std::vector<RunTrace>& runs,
                                           const std::string& folder,
                                           int64_t most_ranks) {
  absl::StatusOr<NetworkModel> network =
      FitNetwork(runs, nullptr, {.most_ranks = most_ranks});
  if (network.ok()) return network;
  return absl::FailedPreconditionError(absl::StrCat(
      "what communication costs is not known: ", network.status().message(),
      "; give --link, or measure it: bazel run //comm_bench -- --nproc=2 "
      "--collectives=all_reduce,ping_pong --record=",
      folder, "/comm_bench-x2.jsonl"));
}

// The batch per rank of ddp's runs, or of a pipeline's ranks; the largest.
double RecordedBatch(absl::Span<const Cell> cells) {
  double batch = 0;
  for (const Cell& cell : cells) {
    if (cell.run.binary == "ddp") batch = std::max(batch, cell.rank_batch);
  }
  for (const Cell& cell : cells) {
    if (batch == 0) batch = cell.rank_batch;
  }
  return batch;
}

absl::StatusOr<std::string> PredictSizes(const Predictor& predictor,
                                         const std::vector<int64_t>& sizes,
                                         double batch_per_rank,
                                         int64_t global_batch) {
  // The efficiency of weak scaling, or under a global batch of strong scaling,
  // is against one rank with this batch (docs/metrics.md).
  Layout one;
  one.batch_per_rank =
      global_batch > 0 ? global_batch : std::llround(batch_per_rank);
  const auto base = predictor.Predict(one);
  std::vector<PredictedRow> rows;
  std::string refusals;
  if (!base.ok()) {
    refusals =
        absl::StrCat("No efficiency against one rank with batch ",
                     one.batch_per_rank, ": ", base.status().message(), ".\n");
  }
  for (int64_t size : sizes) {
    Layout layout;
    layout.dp = size;
    layout.batch_per_rank =
        global_batch > 0 ? global_batch / size : std::llround(batch_per_rank);
    if (global_batch % size != 0) {
      absl::StrAppend(&refusals, "Not predicted: ", layout.Name(),
                      ": a global batch of ", global_batch,
                      " does not divide by ", size, ".\n");
      continue;
    }
    ASSIGN_OR_RETURN(Prediction prediction, predictor.Predict(layout));
    rows.push_back(
        {std::move(prediction), base.ok() ? base->examples_per_second : 0});
  }
  return absl::StrCat(rows.empty() ? "" : PredictionTable(rows), refusals);
}

absl::StatusOr<std::string> RecommendSizes(const Predictor& predictor,
                                           const std::vector<int64_t>& sizes,
                                           double batch_per_rank,
                                           int64_t global_batch,
                                           int64_t memory_limit) {
  std::string text;
  for (int64_t size : sizes) {
    RecommendConfig config;
    config.world_size = size;
    config.global_batch =
        global_batch > 0 ? global_batch : size * std::llround(batch_per_rank);
    config.memory_limit_bytes = static_cast<double>(memory_limit);
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

}  // namespace

absl::StatusOr<std::string> RunPredict(const PredictFlags& flags) {
  RETURN_IF_ERROR(CheckFlags(flags));
  ASSIGN_OR_RETURN(const auto sizes, ParseWorldSizes(flags.world_sizes));
  int64_t memory_limit = 0;
  if (!flags.memory_limit.empty()) {
    ASSIGN_OR_RETURN(memory_limit,
                     ParseMemory("memory_limit", flags.memory_limit));
  }
  const std::string records = UserPath(flags.records);
  ASSIGN_OR_RETURN(const auto runs, LoadRecords(records));
  ASSIGN_OR_RETURN(const auto network,
                   flags.link.empty()
                       ? FittedNetwork(runs, FolderOf(records), flags.fit_up_to)
                       : NetworkOf(flags.link));
  const ThroughputConfig config{.warmup_steps = flags.warmup_steps};
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, config, &left_out);
  if (flags.fit_up_to > 0) {
    ASSIGN_OR_RETURN(
        const auto score,
        ScorePredictions(runs, cells, flags.fit_up_to, network, config));
    return ScoreTable(score);
  }
  ASSIGN_OR_RETURN(const auto predictor,
                   Predictor::Create(runs, network, config));
  const double batch = RecordedBatch(cells);
  return flags.recommend
             ? RecommendSizes(predictor, sizes, batch, flags.global_batch,
                              memory_limit)
             : PredictSizes(predictor, sizes, batch, flags.global_batch);
}

}  // namespace rankwise
