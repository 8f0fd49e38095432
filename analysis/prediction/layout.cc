#include "analysis/prediction/layout.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {
namespace {

// Joins the axes with several ranks.
std::string JoinAxes(const Layout& layout, const char* before_ranks,
                     const char* separator) {
  std::string text;
  for (const auto& [name, ranks] : kMeshAxes) {
    if (layout.*ranks <= 1) continue;
    absl::StrAppend(&text, text.empty() ? "" : separator, name, before_ranks,
                    layout.*ranks);
  }
  return text;
}

}  // namespace

int64_t Layout::hosts() const {
  if (ranks_per_host == 0) return 1;
  return (ranks() + ranks_per_host - 1) / ranks_per_host;
}

int64_t Layout::stages_per_rank() const {
  return chunks > 0 ? chunks : DefaultChunks(schedule);
}

bool Layout::cuts_backward() const {
  return schedule == "zbv" || absl::StartsWith(schedule, "zero_bubble");
}

std::string Layout::Name() const {
  const std::string where =
      hosts() > 1 ? absl::StrCat(" on ", hosts(), " hosts",
                                 hierarchical ? ", hierarchical" : "")
                  : "";
  if (pp == 1) {
    const std::string name = absl::StrCat("ddp x", dp, where);
    if (bucket_bytes == 0) return name;
    return absl::StrFormat("%s, buckets of %.3g MB", name, bucket_bytes * 1e-6);
  }
  return absl::StrCat(
      schedule, chunks > 0 && interleaves() ? absl::StrCat(" x", chunks) : "",
      " ", MeshName(), where, ", ", micro_batches,
      micro_batches == 1 ? " micro-batch" : " micro-batches");
}

std::string Layout::AxesName() const { return JoinAxes(*this, "", "x"); }

std::string Layout::MeshName() const {
  const std::string axes = JoinAxes(*this, " ", " x ");
  return axes.empty() ? "1 rank" : axes;
}

std::string Layout::Details() const {
  std::string text;
  if (pp > 1) {
    absl::StrAppend(&text, schedule,
                    interleaves() ? absl::StrCat(" x", stages_per_rank()) : "",
                    ", ");
  }
  absl::StrAppend(&text, micro_batches, " x ", micro_batch);
  if (zero > 0) absl::StrAppend(&text, ", ZeRO ", zero);
  if (sequence_parallel) absl::StrAppend(&text, ", sequence parallel");
  if (recompute == Recompute::kFull) absl::StrAppend(&text, ", recompute");
  if (recompute == Recompute::kAttention)
    absl::StrAppend(&text, ", selective recompute");
  return text;
}

std::string Layout::FullName() const {
  return absl::StrCat(MeshName(), ", ", Details());
}

}  // namespace rankwise
