// Finds the layouts in which a model trains fastest on a number of ranks.
// `bazel run //analysis:plan -- --help`; docs/plan.md.

#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/plan/output.h"
#include "analysis/plan/published.h"
#include "analysis/plan/recorded_machine.h"
#include "analysis/plan/score.h"
#include "analysis/plan/search.h"
#include "analysis/prediction/recordings.h"
#include "analysis/runs/run_trace.h"
#include "analysis/text/program.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "records/text_file.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, model, "",
          "a size of gpt (nano, micro, mini, small, gpt2) or megatron-22b, "
          "gpt3-175b, turing-530b, megatron-1t; if empty, the numbers below");
ABSL_FLAG(int64_t, layers, 0, "blocks; with --model, 0: the model's own");
ABSL_FLAG(int64_t, width, 0, "features between blocks");
ABSL_FLAG(int64_t, heads, 0, "attention heads");
ABSL_FLAG(int64_t, sequence_length, 0, "tokens per example");
ABSL_FLAG(int64_t, vocabulary, 0, "token values");
ABSL_FLAG(std::string, cluster, "",
          "a100-selene, h100-superpod, or a JSON file (docs/plan.md)");
ABSL_FLAG(std::string, records, "",
          "instead of --cluster: a study's folder, whose runs of single, ddp "
          "or fsdp measure computation and comm_bench's "
          "communication");
ABSL_FLAG(bool, score, false,
          "with --records: only print predictions and measurements of the "
          "recorded layouts that were not used to fit; --memory limits the "
          "planner's choice among them");
ABSL_FLAG(int64_t, fit_up_to, 0,
          "with --score: fit runs of at most this many ranks and score the "
          "larger ones; if 0, fit those without communication (single, ddp "
          "--skip_communication), and score all others");
ABSL_FLAG(
    int64_t, devices_per_node, 0,
    "devices per node; if 0, that of the cluster; with --records of CPUs, a "
    "host's memory is divided by it");
ABSL_FLAG(std::string, memory, "",
          "memory of a device, such as 80GB; if empty, that of the cluster; "
          "required with --records of GPUs");
ABSL_FLAG(std::string, world_sizes, "8,64,512", "ranks to plan for");
ABSL_FLAG(int64_t, global_batch, 0,
          "examples per step; if 0, --batch_per_rank times the ranks");
ABSL_FLAG(int64_t, batch_per_rank, 1, "examples per step and rank");
ABSL_FLAG(std::string, precision, "bf16", "bf16 or fp32");
ABSL_FLAG(std::string, schedules, "1f1b,interleaved_1f1b,zero_bubble_h1,zbv",
          "pipeline schedules to search");
ABSL_FLAG(std::string, zero, "0,1,2,3", "ZeRO stages to search");
ABSL_FLAG(int64_t, best, 5, "layouts to print for each number of ranks");
ABSL_FLAG(std::string, json, "", "file for the plan; if empty, none");
ABSL_FLAG(std::string, validate, "",
          "korthikanti2022 or narayanan2021: only print that paper's tables "
          "next to predictions");

namespace rankwise::plan {
namespace {

constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kMostLayouts = 1000;

absl::Status CheckRange(const char* flag, int64_t value, int64_t least,
                        int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", value, ": must be from ", least, " to ", most));
}

absl::StatusOr<Model> ModelFromFlags() {
  Model model;
  if (const std::string name = absl::GetFlag(FLAGS_model); !name.empty()) {
    const absl::StatusOr<Model> known = NamedModel(name);
    if (!known.ok())
      return absl::InvalidArgumentError(known.status().message());
    model = *known;
  }
  const auto take = [&model](int64_t value, int64_t Model::*number) {
    if (value == 0) return;
    model.*number = value;
    model.has_trainer = false;
  };
  take(absl::GetFlag(FLAGS_layers), &Model::blocks);
  take(absl::GetFlag(FLAGS_width), &Model::width);
  take(absl::GetFlag(FLAGS_heads), &Model::heads);
  take(absl::GetFlag(FLAGS_sequence_length), &Model::sequence);
  take(absl::GetFlag(FLAGS_vocabulary), &Model::vocabulary);
  if (model.blocks == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("give --model (", absl::StrJoin(ModelNames(), ", "),
                     ") or --layers, --width, --heads, --sequence_length and "
                     "--vocabulary"));
  }
  RETURN_IF_ERROR(CheckModel(model));
  return model;
}

absl::StatusOr<Cluster> ClusterFromFile(const std::string& name) {
  absl::StatusOr<Cluster> known = NamedCluster(name);
  if (known.ok()) return known;
  const absl::StatusOr<std::string> text = ReadTextFile(UserPath(name));
  if (absl::IsNotFound(text.status()))
    return absl::InvalidArgumentError(known.status().message());
  absl::StatusOr<Cluster> cluster =
      text.ok() ? ClusterFromJson(*text) : text.status();
  if (cluster.ok()) return cluster;
  return absl::InvalidArgumentError(
      absl::StrCat("--cluster=", name, ": ", cluster.status().message()));
}

// Returns the bytes of --memory; 0 without it.
absl::StatusOr<double> MemoryFromFlags() {
  const std::string memory = absl::GetFlag(FLAGS_memory);
  if (memory.empty()) return 0.0;
  ASSIGN_OR_RETURN(const int64_t bytes, ParseMemory("memory", memory));
  return static_cast<double>(bytes);
}

// The cluster given by the flags.
class ClusterSource {
 public:
  // `machine_` points into `runs_`, which a copy would not share.
  ClusterSource(ClusterSource&&) = default;
  ClusterSource& operator=(ClusterSource&&) = default;

  static absl::StatusOr<ClusterSource> FromFlags() {
    const std::string name = absl::GetFlag(FLAGS_cluster);
    const std::string records = absl::GetFlag(FLAGS_records);
    if (name.empty() == records.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "give either --cluster (", absl::StrJoin(ClusterNames(), ", "),
          " or a file) or --records"));
    }
    ClusterSource source;
    if (records.empty()) {
      ASSIGN_OR_RETURN(source.stated_, ClusterFromFile(name));
    } else {
      ASSIGN_OR_RETURN(source.runs_, LoadRecordings(UserPath(records)));
      source.machine_.emplace(source.runs_, RecordedRuns());
      source.precision_ = absl::GetFlag(FLAGS_precision);
      ASSIGN_OR_RETURN(
          const Cluster all,
          source.machine_->ClusterFor({.precision = source.precision_}));
      source.deviation_ =
          RecordedDeviation(source.runs_, source.precision_, all);
    }
    source.devices_ = absl::GetFlag(FLAGS_devices_per_node);
    RETURN_IF_ERROR(
        CheckRange("devices_per_node", source.devices_, 0, kMostRanks));
    ASSIGN_OR_RETURN(source.memory_bytes_, MemoryFromFlags());
    return source;
  }

  // Records describe computation at that number of ranks.
  absl::StatusOr<Cluster> For(int64_t ranks) const {
    Cluster cluster = stated_;
    if (machine_.has_value()) {
      ASSIGN_OR_RETURN(cluster,
                       machine_->ClusterFor({.ranks = ranks,
                                             .devices_per_node = devices_,
                                             .precision = precision_}));
      cluster.deviation = deviation_;
    } else if (devices_ > 0) {
      cluster.devices_per_node = devices_;
    }
    if (memory_bytes_ > 0) cluster.device.memory_bytes = memory_bytes_;
    if (cluster.device.memory_bytes == 0) {
      return absl::InvalidArgumentError(
          "--records: records do not contain the memory of a GPU: pass it, "
          "such as --memory=80GB");
    }
    return cluster;
  }

 private:
  ClusterSource() = default;

  Cluster stated_;
  std::vector<RunTrace> runs_;
  // from `runs_`; otherwise `stated_` applies
  std::optional<RecordedMachine> machine_;
  double deviation_ = 0;
  int64_t devices_ = 0;
  std::string precision_;
  double memory_bytes_ = 0;
};

absl::StatusOr<SearchConfig> SearchFromFlags() {
  SearchConfig config;
  config.schedules = absl::StrSplit(absl::GetFlag(FLAGS_schedules), ',');
  for (const std::string& schedule : config.schedules) {
    if (!IsScheduleName(schedule) || schedule == "dualpipev" ||
        schedule == "zero_bubble_auto") {
      return absl::InvalidArgumentError(
          absl::StrCat("--schedules=", absl::GetFlag(FLAGS_schedules), ": ",
                       Quoted(schedule),
                       " is not planned: naive, gpipe, 1f1b, interleaved_1f1b, "
                       "zero_bubble_h1, zero_bubble_h2 and zbv are"));
    }
  }
  ASSIGN_OR_RETURN(const auto stages,
                   ParseNumbers("zero", absl::GetFlag(FLAGS_zero), 0, 3));
  config.zero_stages.assign(stages.begin(), stages.end());
  const int64_t best = absl::GetFlag(FLAGS_best);
  RETURN_IF_ERROR(CheckRange("best", best, 1, kMostLayouts));
  config.best = static_cast<size_t>(best);
  return config;
}

absl::StatusOr<std::string> Plan() {
  ASSIGN_OR_RETURN(const auto sizes,
                   ParseNumbers("world_sizes", absl::GetFlag(FLAGS_world_sizes),
                                1, kMostRanks));
  const int64_t batch = absl::GetFlag(FLAGS_global_batch);
  const int64_t rank_batch = absl::GetFlag(FLAGS_batch_per_rank);
  RETURN_IF_ERROR(CheckRange("global_batch", batch, 0, kMostRanks));
  RETURN_IF_ERROR(CheckRange("batch_per_rank", rank_batch, 1, 1 << 16));
  ASSIGN_OR_RETURN(SearchConfig config, SearchFromFlags());
  const std::string precision = absl::GetFlag(FLAGS_precision);
  Setting setting;
  RETURN_IF_ERROR(OwnEngine(precision).status());
  ASSIGN_OR_RETURN(setting.model, ModelFromFlags());
  ASSIGN_OR_RETURN(const ClusterSource source, ClusterSource::FromFlags());
  std::vector<Cluster> clusters;  // by number of ranks
  for (const int64_t size : sizes) {
    ASSIGN_OR_RETURN(clusters.emplace_back(), source.For(size));
  }
  setting.cluster = clusters.back();
  ASSIGN_OR_RETURN(setting.engine,
                   OwnEngine(precision, setting.cluster.device.is_cpu));
  const std::string json = UserPath(absl::GetFlag(FLAGS_json));
  if (!json.empty()) RETURN_IF_ERROR(CheckReplaceable(json));

  std::string text = SettingText(setting);
  std::vector<SearchResult> results;
  absl::Status refusal;
  for (size_t i = 0; i < sizes.size(); ++i) {
    config.ranks = sizes[i];
    config.global_batch = batch > 0 ? batch : sizes[i] * rank_batch;
    setting.cluster = clusters[i];
    ASSIGN_OR_RETURN(StepModel steps, StepModel::Create(setting));
    absl::StatusOr<SearchResult> result = Search(steps, config);
    if (result.ok()) {
      absl::StrAppend(&text, SearchText(*result, setting, precision));
      results.push_back(*std::move(result));
      continue;
    }
    if (!absl::IsFailedPrecondition(result.status()) &&
        !absl::IsResourceExhausted(result.status()))
      return result.status();
    refusal = result.status();
    absl::StrAppend(&text, "\n", result.status().message(), "\n");
  }
  if (results.empty()) return refusal;
  if (results.size() > 1) absl::StrAppend(&text, ScalingChart(results));
  if (!json.empty())
    RETURN_IF_ERROR(ReplaceFile(json, PlanJson(results, setting)));
  return text;
}

absl::StatusOr<std::string> ScoreText() {
  const std::string records = absl::GetFlag(FLAGS_records);
  if (records.empty())
    return absl::InvalidArgumentError("--score: give --records");
  ScoreConfig config;
  config.fit_up_to = absl::GetFlag(FLAGS_fit_up_to);
  RETURN_IF_ERROR(CheckRange("fit_up_to", config.fit_up_to, 0, kMostRanks));
  ASSIGN_OR_RETURN(config.memory_bytes, MemoryFromFlags());
  ASSIGN_OR_RETURN(const std::vector<RunTrace> runs,
                   LoadRecordings(UserPath(records)));
  ASSIGN_OR_RETURN(const Score score, ScorePlans(runs, config));
  return PlanScoreText(score);
}

absl::StatusOr<std::string> ValidationText(const std::string& name) {
  ASSIGN_OR_RETURN(const auto tables, Published(name));
  return absl::StrJoin(tables, "\n",
                       [](std::string* text, const PublishedTable& table) {
                         absl::StrAppend(text, PublishedText(table));
                       });
}

absl::Status Run() {
  const std::string validated = absl::GetFlag(FLAGS_validate);
  ASSIGN_OR_RETURN(const std::string text,
                   absl::GetFlag(FLAGS_score) ? ScoreText()
                   : validated.empty()        ? Plan()
                                              : ValidationText(validated));
  std::cout << text << std::flush;
  return absl::OkStatus();
}

constexpr char kUsage[] =
    "Plans how to divide a transformer's training among ranks.\n"
    "  bazel run //analysis:plan -- --model=gpt3-175b --cluster=a100-selene "
    "--world_sizes=64,512,4096\n"
    "  ... --layers=32 --width=4096 --heads=32 --sequence_length=4096 "
    "--vocabulary=128000\n"
    "  ... --records=results/TIME --model=nano --world_sizes=1,2,4 "
    "--precision=fp32\n"
    "  ... --records=results/TIME --score   recorded layouts next to "
    "predictions\n"
    "  ... --validate=korthikanti2022   published tables next to predictions";

}  // namespace
}  // namespace rankwise::plan

int main(int argc, char** argv) {
  return rankwise::RunProgram(
      {"plan", rankwise::plan::kUsage, "analysis/plan/", "--model=gpt3-175b"},
      argc, argv, rankwise::plan::Run);
}
