#include "analysis/study/run_times.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "analysis/stats/statistics.h"
#include "analysis/study/study_folder.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

// What the time of a run depends on, beside what its name says.
constexpr absl::string_view kDecisive[] = {
    "model",   "dataset",   "data_dir",     "device",
    "backend", "precision", "trainer_flags"};

// Processor time of single on one core, per example; rough.
constexpr std::pair<absl::string_view, double> kSecondsPerExample[] = {
    {"simple_cnn", 0.6e-3}, {"mlp", 0.15e-3},   {"vit", 5e-3},
    {"gpt", 11e-3},         {"mp_mlp", 0.4e-3}, {"linear", 1e-6}};
// Flags that make another model of the name.
constexpr absl::string_view kSizes[] = {
    "--model_size=", "--depth=", "--width=", "--sequence_length="};
constexpr double kEfficiency = 0.6;
// 36 rows of --max_seconds=0.3 at most.
constexpr double kCommBenchSeconds = 15;

bool HasItsOwnSize(const StudyConfig& config) {
  for (const std::string& flag : config.trainer_flags) {
    for (absl::string_view size : kSizes) {
      if (absl::StartsWith(flag, size)) return true;
    }
  }
  return false;
}

bool IsAlike(const ConfigFile& a, const ConfigFile& b) {
  if (!a.origin.has_value() || !b.origin.has_value()) return false;
  for (absl::string_view name : kDecisive) {
    const auto in_a = a.values.find(std::string(name));
    const auto in_b = b.values.find(std::string(name));
    if (in_a == a.values.end() || in_b == b.values.end() ||
        in_a->second != in_b->second) {
      return false;
    }
  }
  return a.origin->cpu_model == b.origin->cpu_model &&
         a.origin->cores == b.origin->cores &&
         a.origin->threads_per_rank == b.origin->threads_per_rank;
}

double StartUpSeconds(const PlannedRun& run) {
  return 0.5 + 0.3 * static_cast<double>(run.world_size);
}

std::optional<RunTime> RoughTime(const StudyConfig& config,
                                 const PlannedRun& run) {
  if (!run.IsTraining()) return RunTime{kCommBenchSeconds, "rough"};
  const auto known = std::find_if(
      std::begin(kSecondsPerExample), std::end(kSecondsPerExample),
      [&config](const auto& model) { return model.first == config.model; });
  if (known == std::end(kSecondsPerExample) || HasItsOwnSize(config)) {
    return std::nullopt;
  }
  const int64_t ranks = run.trainer == "model_parallel" ? 1 : run.world_size;
  const int64_t workers = std::min(ranks * ThreadsPerRank(config),
                                   std::max<int64_t>(1, config.cores));
  const double speedup =
      workers == 1 ? 1 : kEfficiency * static_cast<double>(workers);
  return RunTime{StartUpSeconds(run) +
                     static_cast<double>(config.max_steps * run.GlobalBatch()) *
                         known->second / speedup,
                 "rough"};
}

// The cell of a run: its name without "-rep3".
std::string CellOf(const std::string& run) {
  return run.substr(0, run.rfind("-rep"));
}

}  // namespace

RunTimes RunTimes::Load(const std::string& results_dir,
                        const std::string& own_dir, const ConfigFile& study,
                        absl::Span<const ConfigKey> keys) {
  RunTimes times;
  times.Read(own_dir, study, keys);
  std::vector<std::string> dirs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(results_dir, error)) {
    dirs.push_back(entry.path().string());
  }
  std::sort(dirs.rbegin(), dirs.rend());  // their names are times
  for (const std::string& dir : dirs) times.Read(dir, study, keys);
  return times;
}

void RunTimes::Read(const std::string& dir, const ConfigFile& study,
                    absl::Span<const ConfigKey> keys) {
  std::error_code error;
  if (!fs::exists(StudyFilePath(dir), error)) return;
  const absl::StatusOr<ConfigFile> earlier =
      ReadConfigFile(StudyFilePath(dir), keys);
  if (!earlier.ok() || !IsAlike(*earlier, study)) return;
  double steps = 0;
  if (earlier->values.count("max_steps") == 0 ||
      !absl::SimpleAtod(earlier->values.at("max_steps"), &steps) || steps < 1) {
    return;
  }
  std::map<std::string, std::vector<double>> seconds;
  for (const auto& [run, took] : ReadDurations(dir)) {
    seconds[CellOf(run)].push_back(took);
  }
  for (const auto& [cell, took] : seconds) {
    by_cell_.insert({cell, {Median(took), steps, dir}});
  }
}

std::optional<RunTime> RunTimes::Of(const StudyConfig& config,
                                    const PlannedRun& run) const {
  const auto earlier = by_cell_.find(run.CellStem());
  if (earlier == by_cell_.end()) return RoughTime(config, run);
  const auto& [seconds, steps, source] = earlier->second;
  if (!run.IsTraining()) return RunTime{seconds, source};
  const double start_up = std::min(seconds, StartUpSeconds(run));
  return RunTime{start_up + (seconds - start_up) *
                                static_cast<double>(config.max_steps) / steps,
                 source};
}

}  // namespace rankwise
