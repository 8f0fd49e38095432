#include "analysis/plan/search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

constexpr int64_t kMostChunks = 8;

std::vector<int64_t> Divisors(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    divisors.push_back(i);
    if (i * i != number) divisors.push_back(number / i);
  }
  std::sort(divisors.begin(), divisors.end());
  return divisors;
}

using Mesh = std::tuple<int64_t, int64_t, int64_t, int64_t>;

Mesh MeshOf(const Layout& layout) {
  return {layout.pp, layout.dp, layout.cp, layout.tp};
}

// Appends all layouts of a mesh that the engine can run to `layouts`.
class MeshLayouts {
 public:
  MeshLayouts(const Setting& setting, const SearchConfig& config, Layout mesh,
              std::vector<Layout>& layouts)
      : setting_(setting), config_(config), layout_(mesh), layouts_(layouts) {}

  void Add() {
    const int64_t replica_batch = config_.global_batch / layout_.dp;
    for (int64_t b = 1; b <= config_.most_micro_batch; b *= 2) {
      if (replica_batch % b != 0) break;
      layout_.micro_batch = b;
      layout_.micro_batches = replica_batch / b;
      AddSchedules();
    }
  }

 private:
  void AddSchedules() {
    if (layout_.pp == 1) return AddOptions("1f1b", 1);
    for (const std::string& schedule : config_.schedules) {
      if (schedule != "interleaved_1f1b") {
        AddOptions(schedule, DefaultChunks(schedule));
        continue;
      }
      for (int64_t chunks = 2; chunks <= kMostChunks; ++chunks) {
        if (setting_.model.blocks % (layout_.pp * chunks) == 0)
          AddOptions(schedule, chunks);
      }
    }
  }

  void AddOptions(const std::string& schedule, int64_t chunks) {
    layout_.schedule = schedule;
    layout_.chunks = chunks;
    for (const int zero : config_.zero_stages) {
      layout_.zero = zero;
      for (const bool sequence : {false, true}) {
        layout_.sequence_parallel = sequence;
        for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
          layout_.recompute = recompute;
          if (CheckLayout(setting_.model, layout_, setting_.engine).ok())
            layouts_.push_back(layout_);
        }
      }
    }
  }

  const Setting& setting_;
  const SearchConfig& config_;
  Layout layout_;
  std::vector<Layout>& layouts_;
};

std::vector<Layout> AllLayouts(const Setting& setting,
                               const SearchConfig& config) {
  const int64_t devices = setting.cluster.devices_per_node;
  std::vector<Layout> layouts;
  for (const int64_t tp : Divisors(config.ranks)) {
    if (tp > devices) break;
    // Groups along tp must not straddle nodes.
    if (config.ranks > devices && devices % tp != 0) continue;
    for (const int64_t pp : Divisors(config.ranks / tp)) {
      for (const int64_t cp : Divisors(config.ranks / tp / pp)) {
        const int64_t dp = config.ranks / tp / pp / cp;
        if (config.global_batch % dp != 0) continue;
        MeshLayouts(setting, config, {.pp = pp, .dp = dp, .cp = cp, .tp = tp},
                    layouts)
            .Add();
      }
    }
  }
  return layouts;
}

struct Candidate {
  const Layout* layout;
  double least_seconds;
};

// The fastest layouts of each mesh so far.
class Best {
 public:
  explicit Best(size_t count) : count_(count) {}

  // Whether a layout that takes at least `seconds` may be among the best.
  bool Takes(const Layout& layout, double seconds) const {
    const auto found = by_mesh_.find(MeshOf(layout));
    if (found != by_mesh_.end() && seconds >= found->second.step_seconds)
      return false;
    return seconds < Limit();
  }
  // Returns the step above which no layout can be among the best.
  double Limit() const { return limit_; }
  void Add(const Step& planned) {
    const auto [found, is_new] =
        by_mesh_.emplace(MeshOf(planned.layout), planned);
    if (!is_new && planned.step_seconds < found->second.step_seconds)
      found->second = planned;
    if (by_mesh_.size() >= count_) limit_ = Sorted().back().step_seconds;
  }
  std::vector<Step> Sorted() const {
    std::vector<Step> sorted;
    for (const auto& [mesh, planned] : by_mesh_) sorted.push_back(planned);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Step& a, const Step& b) {
                       return a.step_seconds < b.step_seconds;
                     });
    if (sorted.size() > count_) sorted.resize(count_);
    return sorted;
  }

 private:
  const size_t count_;
  double limit_ = std::numeric_limits<double>::infinity();
  std::map<Mesh, Step> by_mesh_;
};

absl::Status NothingFits(const SearchConfig& config, const Setting& setting,
                         const Layout& smallest, double least_bytes) {
  const double limit = setting.cluster.device.memory_bytes;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "no layout of %d ranks fits into %.1f GB per rank: the one that takes "
      "least, %s (%s), takes %.1f GB or more; give more ranks, a smaller "
      "model, or a smaller --sequence_length",
      config.ranks, 1e-9 * limit, smallest.MeshName(), smallest.Details(),
      1e-9 * least_bytes));
}

void LeaveOut(const Layout& layout, const absl::Status& reason,
              SearchResult& result) {
  if (++result.left_out > 1) return;
  result.why_left_out = absl::StrCat(layout.MeshName(), " (", layout.Details(),
                                     "): ", reason.message());
}

}  // namespace

absl::StatusOr<SearchResult> Search(StepModel& model,
                                    const SearchConfig& config) {
  const Setting& setting = model.setting();
  RETURN_IF_ERROR(CheckReach(setting.cluster, config.ranks));
  const std::vector<Layout> layouts = AllLayouts(setting, config);
  if (layouts.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no layout of ", config.ranks, " ranks: no number of replicas divides ",
        "both these and a global batch of ", config.global_batch,
        " with the rest of the ranks along tp, cp and pp of ",
        setting.model.name, "; give another --global_batch"));
  }
  SearchResult result;
  result.ranks = config.ranks;
  result.global_batch = config.global_batch;
  result.layouts = static_cast<int64_t>(layouts.size());
  const double limit = setting.cluster.device.memory_bytes;
  std::vector<Candidate> candidates;
  std::pair<double, const Layout*> smallest = {
      std::numeric_limits<double>::infinity(), nullptr};
  for (const Layout& layout : layouts) {
    ASSIGN_OR_RETURN(const double bytes, model.LeastBytes(layout));
    smallest = std::min(smallest, {bytes, &layout});
    if (bytes > limit) continue;
    ASSIGN_OR_RETURN(const double seconds, model.LeastSeconds(layout));
    candidates.push_back({&layout, seconds});
  }
  result.fit = static_cast<int64_t>(candidates.size());
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.least_seconds < b.least_seconds;
                   });
  Best best(config.best);
  for (const Candidate& candidate : candidates) {
    if (candidate.least_seconds >= best.Limit()) break;
    if (!best.Takes(*candidate.layout, candidate.least_seconds)) continue;
    const absl::StatusOr<Memory> least =
        model.WithoutMessages(*candidate.layout);
    if (absl::IsInvalidArgument(least.status())) {
      LeaveOut(*candidate.layout, least.status(), result);
      continue;
    }
    RETURN_IF_ERROR(least.status());
    if (least->sum() > limit) continue;
    ASSIGN_OR_RETURN(const Step step, model.Quick(*candidate.layout));
    ++result.simulated;
    if (step.memory.sum() > limit) continue;
    best.Add(step);
  }
  result.best = best.Sorted();
  if (result.best.empty() && result.left_out > 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no layout of ", config.ranks, " ranks could be simulated: ",
        result.why_left_out, "; give another --global_batch or fewer ranks"));
  }
  if (result.best.empty()) {
    return NothingFits(config, setting, *smallest.second, smallest.first);
  }
  for (Step& planned : result.best) {
    ASSIGN_OR_RETURN(planned, model.PredictInDetail(planned.layout));
  }
  return result;
}

}  // namespace rankwise::plan
