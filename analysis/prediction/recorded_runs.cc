#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/prediction/recordings.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// What is trained, and with what: equal in all runs.
constexpr const char* kWork[] = {
    "model",     "model_size",      "depth",    "width",     "tied_head",
    "dataset",   "sequence_length", "dropout",  "precision", "optimizer",
    "recompute", "clip_grad_norm",  "momentum", "tf32",      "sync_batch_norm"};
// How ddp communicates: equal in all of its runs.
constexpr const char* kDdp[] = {"ddp", "bucket_cap_mb", "first_bucket_mb",
                                "comm_hook", "find_unused_parameters"};

bool IsDdp(const RunTrace& run) { return run.ranks[0].run.binary == "ddp"; }

bool IsTrainer(const RunTrace& run) {
  if (run.ranks.empty()) return false;
  const std::string& binary = run.ranks[0].run.binary;
  return binary == "ddp" || binary == "model_parallel" || binary == "pipeline";
}

absl::Status Differ(const std::string& what, const RunTrace& a,
                    const std::string& value_a, const RunTrace& b,
                    const std::string& value_b) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the runs are not of one kind: ", what, " is \"", value_a, "\" in ",
      a.source, " and \"", value_b, "\" in ", b.source,
      "; predict from a folder in which only the world size, the batch and the "
      "pipelines' shapes differ"));
}

// Of the runs that have the flag.
template <typename Runs, typename Filter>
absl::Status CheckFlag(const Runs& runs, const char* flag, Filter filter) {
  const RunTrace* first = nullptr;
  for (const RunTrace* run : runs) {
    if (!filter(*run) || run->ranks[0].run.flags.count(flag) == 0) continue;
    if (first == nullptr) first = run;
    if (FlagOf(*run, flag) == FlagOf(*first, flag)) continue;
    return Differ(absl::StrCat("--", flag), *first, FlagOf(*first, flag), *run,
                  FlagOf(*run, flag));
  }
  return absl::OkStatus();
}

absl::Status CheckAlike(const std::vector<const RunTrace*>& runs) {
  const auto any = [](const RunTrace&) { return true; };
  for (const char* flag : kWork) {
    RETURN_IF_ERROR(CheckFlag(runs, flag, any));
  }
  for (const char* flag : kDdp) {
    RETURN_IF_ERROR(CheckFlag(runs, flag, IsDdp));
  }
  for (const RunTrace* run : runs) {
    const RunRecord& a = runs[0]->ranks[0].run;
    const RunRecord& b = run->ranks[0].run;
    if (a.threads_per_rank != b.threads_per_rank) {
      return Differ("threads per rank", *runs[0],
                    absl::StrCat(a.threads_per_rank), *run,
                    absl::StrCat(b.threads_per_rank));
    }
    if (a.backend != b.backend) {
      return Differ("the backend", *runs[0], a.backend, *run, b.backend);
    }
    if (DeviceKind(a) != DeviceKind(b)) {
      return Differ("the device", *runs[0], DeviceKind(a), *run, DeviceKind(b));
    }
    if (a.host.cpu_model != b.host.cpu_model) {
      return Differ("the CPU", *runs[0], a.host.cpu_model, *run,
                    b.host.cpu_model);
    }
  }
  return absl::OkStatus();
}

template <typename Records>
void SetRank(Records& records, int64_t rank) {
  for (auto& record : records) record.rank = rank;
}

}  // namespace

std::string FlagOf(const RunTrace& run, const std::string& name) {
  const std::map<std::string, std::string>& flags = run.ranks[0].run.flags;
  const auto flag = flags.find(name);
  return flag == flags.end() ? "" : flag->second;
}

bool SkipsCommunication(const RunTrace& run) {
  return FlagOf(run, "skip_communication") == "true";
}

bool IsFake(const RunTrace& run) { return run.ranks[0].run.backend == "fake"; }

RunTrace MirrorFakeRanks(RunTrace run) {
  if (run.ranks.size() != 1 || !IsFake(run)) return run;
  const int64_t world_size = run.ranks[0].run.world_size;
  for (int64_t rank = 1; rank < world_size; ++rank) {
    RankTrace image;
    image.run = run.ranks[0].run;
    image.run.rank = rank;
    image.steps = run.ranks[0].steps;
    SetRank(image.steps, rank);
    run.ranks.push_back(std::move(image));
  }
  return run;
}

double ExamplesPerStep(const RunTrace& run, const ThroughputConfig& config) {
  std::vector<double> examples;
  const std::vector<StepRecord>& steps = run.ranks[0].steps;
  for (size_t i = config.warmup_steps; i < steps.size(); ++i) {
    examples.push_back(static_cast<double>(steps[i].examples));
  }
  return Median(examples);
}

absl::StatusOr<std::vector<const RunTrace*>> PredictableRuns(
    absl::Span<const RunTrace> runs, const ThroughputConfig& config) {
  std::vector<const RunTrace*> usable, captured;
  for (const RunTrace& run : runs) {
    if (!IsTrainer(run)) continue;
    const absl::StatusOr<Throughput> throughput =
        MeasureThroughput(run, config);
    if (!throughput.ok()) continue;
    (throughput->captured ? captured : usable).push_back(&run);
  }
  if (usable.empty() && !captured.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        captured[0]->source,
        ": its steps were captured as graphs, which do not tell backward from "
        "communication; record a run with --cuda_graph=false"));
  }
  RETURN_IF_ERROR(CheckAlike(usable));
  return usable;
}

}  // namespace rankwise
