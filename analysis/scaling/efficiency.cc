#include "analysis/scaling/efficiency.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "records/run_origin.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// What is wrong with a comparison, each with what would fix it.
using Reasons = std::vector<std::string>;

struct Pair {
  const Cell& base;
  const Cell& cell;

  // Each once: a cell may be its own base.
  std::vector<const Cell*> Cells() const {
    if (&base == &cell) return {&base};
    return {&base, &cell};
  }

  void Differ(absl::string_view what, absl::string_view base_value,
              absl::string_view value, absl::string_view fix,
              Reasons& reasons) const {
    reasons.push_back(absl::StrCat(cell.Name(), " and its base case ",
                                   base.Name(), " differ in ", what, ": ",
                                   value, " and ", base_value, "; ", fix));
  }
};

// Flags that only one of the two trainers has are not compared.
void CheckFlags(const Pair& pair, Reasons& reasons) {
  for (const auto& [name, value] : pair.cell.run.flags) {
    if (FollowsWorldSizeOrOutput(name)) continue;
    const auto other = pair.base.run.flags.find(name);
    if (other == pair.base.run.flags.end() || other->second == value) continue;
    pair.Differ(absl::StrCat("--", name),
                absl::StrCat("\"", other->second, "\""),
                absl::StrCat("\"", value, "\""),
                absl::StrCat("run both with the same --", name), reasons);
  }
}

void CheckMachine(const Pair& pair, Reasons& reasons) {
  const RunRecord& a = pair.base.run;
  const RunRecord& b = pair.cell.run;
  struct Property {
    const char* what;
    std::string of_base, of_cell;
    const char* fix;
  };
  const bool communicate = !a.backend.empty() && !b.backend.empty();
  const Property properties[] = {
      {"threads per rank", absl::StrCat(a.threads_per_rank),
       absl::StrCat(b.threads_per_rank), "run both with the same --threads"},
      {"the device", DeviceKind(a), DeviceKind(b),
       "run both with the same --device"},
      {"the CPU", a.host.cpu_model, b.host.cpu_model,
       "run both on one kind of machine"},
      {"the backend", communicate ? a.backend : "",
       communicate ? b.backend : "", "run both with the same --backend"}};
  for (const auto& [what, of_base, of_cell, fix] : properties) {
    if (of_base != of_cell) pair.Differ(what, of_base, of_cell, fix, reasons);
  }
}

void CheckCode(const Pair& pair, Reasons& reasons) {
  const RunRecord& a = pair.base.run;
  const RunRecord& b = pair.cell.run;
  if (a.versions.torch != b.versions.torch) {
    pair.Differ("the version of torch", a.versions.torch, b.versions.torch,
                "run both again with one, into a new --output_dir", reasons);
  }
  // Where one is unknown, CheckCell says so.
  if (!a.source_hash.empty() && !b.source_hash.empty() &&
      a.source_hash != b.source_hash) {
    const auto name = [](const RunRecord& run) {
      return absl::StrCat(run.source_hash, " of ", CommitText(run));
    };
    pair.Differ("the source they were built from", name(a), name(b),
                "run both again from one, into a new --output_dir", reasons);
  }
}

// What is wrong with one of the two cells by itself.
void CheckCell(const Cell& cell, const ComparisonConfig& config,
               Reasons& reasons) {
  if (!cell.shared_device.empty()) {
    reasons.push_back(absl::StrCat(
        "two ranks of ", cell.Name(), " shared the device ", cell.shared_device,
        ": pass --device=auto, and no more ranks than there are devices"));
  }
  if (cell.several_devices_per_rank) {
    reasons.push_back(absl::StrCat(
        "a rank of ", cell.Name(),
        " used several devices, and efficiency compares ranks of one device "
        "each: run a process per device, by --nproc"));
  }
  if (cell.oversubscribed && !config.allow_oversubscribed) {
    reasons.push_back(absl::StrCat(
        "the ranks of ", cell.Name(),
        " had more threads than cores: lower --threads, leave out that world "
        "size, or pass --oversubscribe to compare them anyway"));
  }
  const std::string doubt = WhyNotOneCode(cell.code_versions);
  if (!doubt.empty()) {
    reasons.push_back(absl::StrCat(
        "the repetitions of ", cell.Name(), " ", doubt,
        ": run them again, into a new --output_dir, or pass --force to compare "
        "them anyway"));
  }
}

Reasons FewRepetitions(const Pair& pair) {
  Reasons reasons;
  for (const Cell* cell : pair.Cells()) {
    if (cell->repetitions.size() >= 2) continue;
    reasons.push_back(absl::StrCat(
        cell->Name(), " has ", cell->repetitions.size(),
        " repetition, and an interval needs 2 or more: pass --repetitions"));
  }
  return reasons;
}

void CheckMemory(const Pair& pair, absl::string_view fix, Reasons& reasons) {
  for (const Cell* cell : pair.Cells()) {
    if (cell->peak_bytes > 0) continue;
    reasons.push_back(absl::StrCat(
        "the peak memory of ", cell->Name(),
        ", which fixed-memory scaling holds equal, is not in its records: ",
        "run it again, as trainers record it now"));
    return;
  }
  const double base = pair.base.peak_bytes, peak = pair.cell.peak_bytes;
  if (std::abs(peak - base) <= kMemoryTolerance * base) return;
  pair.Differ(
      "the peak memory of a rank, which fixed-memory scaling holds equal",
      FormatBytes(std::llround(base)), FormatBytes(std::llround(peak)), fix,
      reasons);
}

// What the way of scaling holds equal.
void CheckHeld(const Pair& pair, Scaling scaling, Reasons& reasons) {
  const Cell& base = pair.base;
  const Cell& cell = pair.cell;
  const std::string fix = absl::StrCat(
      "//:study -- --scaling=", ScalingName(scaling), " runs such ones");
  switch (scaling) {
    case Scaling::kStrong:
      if (base.global_batch == cell.global_batch) return;
      return pair.Differ("the global batch, which strong scaling holds equal",
                         absl::StrCat(base.global_batch),
                         absl::StrCat(cell.global_batch), fix, reasons);
    case Scaling::kWeak:
      if (base.rank_batch == cell.rank_batch) return;
      return pair.Differ("the batch per rank, which weak scaling holds equal",
                         BatchText(base.rank_batch), BatchText(cell.rank_batch),
                         fix, reasons);
    case Scaling::kFixedMemory:
      return CheckMemory(pair, fix, reasons);
  }
}

// Reasons that no force passes over: there is nothing to compare.
Reasons FinalReasons(const Pair& pair, Scaling scaling) {
  Reasons reasons;
  for (const Cell* cell : pair.Cells()) {
    if (!cell->IsAblation()) continue;
    reasons.push_back(absl::StrCat(
        cell->Name(), " ran without communication (--skip_communication), ",
        "and is compared with nothing: run it without that flag"));
  }
  CheckHeld(pair, scaling, reasons);
  return reasons;
}

Reasons FixableReasons(const Pair& pair, const ComparisonConfig& config) {
  Reasons reasons;
  for (const Cell* cell : pair.Cells()) CheckCell(*cell, config, reasons);
  CheckFlags(pair, reasons);
  CheckMachine(pair, reasons);
  CheckCode(pair, reasons);
  return reasons;
}

absl::Status FirstOf(const Reasons& reasons) {
  return reasons.empty() ? absl::OkStatus()
                         : absl::FailedPreconditionError(reasons[0]);
}

// Whether `other` may be the base case of `cell` as far as what was run goes.
bool Fits(const Cell& other, const Cell& cell, Scaling scaling) {
  const Pair pair{other, cell};
  Reasons reasons = FinalReasons(pair, scaling);
  CheckFlags(pair, reasons);
  CheckMachine(pair, reasons);
  return reasons.empty();
}

Ratio Speedup(const Cell& base, const Cell& cell) {
  return RatioOf(cell.Values(&Throughput::examples_per_second),
                 base.Values(&Throughput::examples_per_second));
}

// Of the candidates that fit; null without any.
const Cell* FastestThatFits(absl::Span<const Cell* const> candidates,
                            const Cell& cell, Scaling scaling) {
  const Cell* fastest = nullptr;
  for (const Cell* candidate : candidates) {
    if (!Fits(*candidate, cell, scaling)) continue;
    if (fastest == nullptr ||
        candidate->ExamplesPerSecond() > fastest->ExamplesPerSecond()) {
      fastest = candidate;
    }
  }
  return fastest;
}

// The cells of `cell`'s trainer and schedule on the fewest ranks.
std::vector<const Cell*> SmallestOfItsTrainer(absl::Span<const Cell> cells,
                                              const Cell& cell) {
  std::vector<const Cell*> smallest;
  for (const Cell& other : cells) {
    if (other.Trainer() != cell.Trainer() || other.IsAblation()) continue;
    const int64_t size =
        smallest.empty() ? cell.run.world_size : smallest[0]->run.world_size;
    if (other.run.world_size < size) smallest.clear();
    if (other.run.world_size <= size) smallest.push_back(&other);
  }
  return smallest;
}

}  // namespace

absl::string_view ScalingName(Scaling scaling) {
  constexpr absl::string_view kNames[] = {"strong", "weak", "fixed_memory"};
  return kNames[static_cast<size_t>(scaling)];
}

absl::Status CheckComparable(const Cell& base, const Cell& cell,
                             Scaling scaling, const ComparisonConfig& config) {
  const Pair pair{base, cell};
  if (!config.force) {
    RETURN_IF_ERROR(FirstOf(FixableReasons(pair, config)));
  }
  return FirstOf(FinalReasons(pair, scaling));
}

absl::Status CheckEfficiency(const Cell& base, const Cell& cell,
                             Scaling scaling, const ComparisonConfig& config) {
  absl::Status status = CheckComparable(base, cell, scaling, config);
  if (!status.ok() || config.force) return status;
  return FirstOf(FewRepetitions({base, cell}));
}

absl::StatusOr<const Cell*> FindBase(absl::Span<const Cell> cells,
                                     const Cell& cell, Scaling scaling) {
  std::vector<const Cell*> single;
  for (const Cell& other : cells) {
    if (other.run.binary == "single") single.push_back(&other);
  }
  const std::vector<const Cell*> smallest = SmallestOfItsTrainer(cells, cell);
  const Cell* base = FastestThatFits(single, cell, scaling);
  const Cell* own = FastestThatFits(smallest, cell, scaling);
  if (base != nullptr && own != nullptr && own->run.world_size == 1 &&
      Speedup(*base, *own).interval.low > 1) {
    return own;
  }
  if (base != nullptr) return base;
  // A cell of several ranks is its own base only where there is no other: else
  // it would hide that nothing fits it.
  if (own != nullptr && (single.empty() || own->run.world_size == 1 ||
                         own->run.world_size < cell.run.world_size)) {
    return own;
  }
  if (!single.empty()) return single[0];
  if (!smallest.empty()) return smallest[0];
  return absl::NotFoundError(absl::StrCat(
      "there is no base case for ", cell.Name(),
      ": run \"single\" or a smaller world size in the same study, as by ",
      "--trainers=single,", cell.run.binary));
}

absl::StatusOr<Efficiency> CompareToBase(const Cell& base, const Cell& cell,
                                         Scaling scaling,
                                         const ComparisonConfig& config) {
  RETURN_IF_ERROR(CheckEfficiency(base, cell, scaling, config));
  const Ratio speedup = Speedup(base, cell);
  Efficiency result;
  result.speedup = speedup.value;
  result.speedup_interval = speedup.interval;
  const double ranks = cell.run.world_size;
  const double ideal = ranks / base.run.world_size;
  result.efficiency = result.speedup / ideal;
  result.efficiency_interval = {result.speedup_interval.low / ideal,
                                result.speedup_interval.high / ideal};
  const Reasons few = FewRepetitions({base, cell});
  Reasons forced = FixableReasons({base, cell}, config);
  forced.insert(forced.end(), few.begin(), few.end());
  result.warning = absl::StrJoin(forced, "; ");
  return result;
}

}  // namespace rankwise
