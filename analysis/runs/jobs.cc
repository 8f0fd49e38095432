// Groups runs into jobs.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

// Returns a name that is equal for runs that may be parts of one job.
std::string JobName(const RunTrace& run) {
  const RunRecord& opened = run.ranks[0].run;
  const std::string checkpoints = FlagOf(opened, "checkpoint_dir");
  return absl::StrCat(opened.binary, "\n",
                      checkpoints.empty() ? run.source : checkpoints, "\n",
                      checkpoints.empty() ? opened.scaling_hash : "");
}

// Returns the earliest step of all ranks; 0 if the run has no steps.
int64_t FirstStep(const RunTrace& run) {
  int64_t first = 0;
  for (const RankTrace& rank : run.ranks) {
    if (rank.steps.empty()) continue;
    const int64_t step = rank.steps[0].step;
    first = first == 0 ? step : std::min(first, step);
  }
  return first;
}

bool IsRestarted(const RunTrace& run) {
  return absl::c_any_of(
      run.ranks, [](const RankTrace& rank) { return !rank.restarts.empty(); });
}

// One of the jobs with the same JobName, while its parts are collected: indices
// of its first and latest run.
struct Job {
  size_t first = 0, latest = 0;
};

// Returns the job that run `index` continues, or nullptr: among the jobs begun
// at an earlier step (for a restart, the same step), the one whose latest part
// most closely precedes the run.
Job* FindContinued(absl::Span<const RunTrace> runs, size_t index,
                   std::vector<Job>& jobs) {
  const bool restarted = IsRestarted(runs[index]);
  const int64_t step = FirstStep(runs[index]);
  if (step == 1 && !restarted) return nullptr;
  Job* found = nullptr;
  for (Job& job : jobs) {
    const int64_t before = FirstStep(runs[job.latest]);
    if (before > step || (before == step && !restarted)) continue;
    const bool precedes = job.latest < index;
    if (found == nullptr ||
        (precedes && (found->latest > index || found->latest < job.latest))) {
      found = &job;
    }
  }
  return found;
}

}  // namespace

std::vector<size_t> JobsOf(absl::Span<const RunTrace> runs) {
  std::vector<size_t> first_runs(runs.size()), by_step;
  for (size_t i = 0; i < runs.size(); ++i) {
    first_runs[i] = i;
    if (FirstStep(runs[i]) > 0) by_step.push_back(i);
  }
  // File names need not follow the order of recording.
  std::stable_sort(by_step.begin(), by_step.end(), [runs](size_t a, size_t b) {
    return FirstStep(runs[a]) < FirstStep(runs[b]);
  });
  std::map<std::string, std::vector<Job>> jobs;
  for (const size_t i : by_step) {
    std::vector<Job>& of_name = jobs[JobName(runs[i])];
    if (Job* const continued = FindContinued(runs, i, of_name)) {
      continued->latest = i;
      first_runs[i] = continued->first;
    } else {
      of_name.push_back({i, i});
    }
  }
  return first_runs;
}

}  // namespace rankwise
