#include "analysis/scaling/efficiency.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/text/table.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Reasons = std::vector<std::string>;

// Collects the reasons against a comparison, each with its remedy.
class PairCheck {
 public:
  PairCheck(const Cell& base, const Cell& cell) : base_(base), cell_(cell) {}

  // Checks for reasons that ComparisonConfig::force does not override.
  void CheckFinal(Scaling scaling) {
    for (const Cell* cell : Cells()) {
      if (!cell->IsAblation()) continue;
      Add(cell->Name(), " ran without communication (--skip_communication), ",
          "and is compared with nothing: run it without that flag");
    }
    CheckHeld(scaling);
  }

  void CheckFixable(const ComparisonConfig& config) {
    for (const Cell* cell : Cells()) CheckCell(*cell, config);
    CheckSetup();
    CheckCode();
  }

  // Checks that the cells ran with the same flags on the same kind of machine.
  void CheckSetup() {
    CheckFlags();
    CheckMachine();
  }

  void CheckRepetitions() {
    for (const Cell* cell : Cells()) {
      if (cell->repetitions.size() >= 2) continue;
      Add(cell->Name(), " has ", cell->repetitions.size(),
          " repetition, and an interval needs 2 or more: pass --repetitions");
    }
  }

  const Reasons& reasons() const { return reasons_; }
  absl::Status FirstReason() const {
    return reasons_.empty() ? absl::OkStatus()
                            : absl::FailedPreconditionError(reasons_[0]);
  }

 private:
  // Lists each cell once: a cell may be its own base.
  std::vector<const Cell*> Cells() const {
    if (&base_ == &cell_) return {&base_};
    return {&base_, &cell_};
  }

  template <typename... Parts>
  void Add(const Parts&... parts) {
    reasons_.push_back(absl::StrCat(parts...));
  }

  void Differ(absl::string_view what, absl::string_view base_value,
              absl::string_view value, absl::string_view fix) {
    Add(cell_.Name(), " and its base case ", base_.Name(), " differ in ", what,
        ": ", value, " and ", base_value, "; ", fix);
  }

  // Flags that only one of the two trainers defines are not compared.
  void CheckFlags() {
    for (const auto& [name, value] : cell_.run.flags) {
      if (FollowsWorldSizeOrOutput(name)) continue;
      const auto other = base_.run.flags.find(name);
      if (other == base_.run.flags.end() || other->second == value) continue;
      Differ(absl::StrCat("--", name), absl::StrCat("\"", other->second, "\""),
             absl::StrCat("\"", value, "\""),
             absl::StrCat("run both with the same --", name));
    }
  }

  void CheckMachine() {
    const RunRecord& a = base_.run;
    const RunRecord& b = cell_.run;
    const auto check = [this](const char* what, const std::string& of_base,
                              const std::string& of_cell, const char* fix) {
      if (of_base != of_cell) Differ(what, of_base, of_cell, fix);
    };
    check("threads per rank", absl::StrCat(a.threads_per_rank),
          absl::StrCat(b.threads_per_rank), "run both with the same --threads");
    check("the device", DeviceKind(a), DeviceKind(b),
          "run both with the same --device");
    check("the CPU", a.host.cpu_model, b.host.cpu_model,
          "run both on one kind of machine");
    if (a.backend.empty() || b.backend.empty()) return;
    check("the backend", a.backend, b.backend,
          "run both with the same --backend");
  }

  void CheckCode() {
    const RunRecord& a = base_.run;
    const RunRecord& b = cell_.run;
    if (a.versions.torch != b.versions.torch) {
      Differ("the version of torch", a.versions.torch, b.versions.torch,
             "run both again with one, into a new --output_dir");
    }
    // CheckCell reports unknown code.
    if (!a.source_hash.empty() && !b.source_hash.empty() &&
        a.source_hash != b.source_hash) {
      const auto name = [](const RunRecord& run) {
        return absl::StrCat(run.source_hash, " of ", CommitText(run));
      };
      Differ("the source they were built from", name(a), name(b),
             "run both again from one, into a new --output_dir");
    }
  }

  // Checks one of the two cells by itself.
  void CheckCell(const Cell& cell, const ComparisonConfig& config) {
    if (!cell.shared_device.empty()) {
      Add("two ranks of ", cell.Name(), " shared the device ",
          cell.shared_device,
          ": pass --device=auto, and no more ranks than there are devices");
    }
    if (cell.several_devices_per_rank) {
      Add("a rank of ", cell.Name(),
          " used several devices, and efficiency compares ranks of one device "
          "each: run a process per device, by --nproc");
    }
    if (cell.oversubscribed && !config.allow_oversubscribed) {
      Add("the ranks of ", cell.Name(),
          " had more threads than cores: lower --threads, leave out that world "
          "size, or pass --oversubscribe to compare them anyway");
    }
    const std::string doubt = WhyNotOneCode(cell.code_versions);
    if (!doubt.empty()) {
      Add("the repetitions of ", cell.Name(), " ", doubt,
          ": run them again, into a new --output_dir, or pass --force to "
          "compare them anyway");
    }
  }

  // Checks the quantity that the way of scaling keeps constant.
  void CheckHeld(Scaling scaling) {
    const std::string fix = absl::StrCat(
        "//:study -- --scaling=", ScalingName(scaling), " runs such cells");
    switch (scaling) {
      case Scaling::kStrong:
        if (base_.global_batch == cell_.global_batch) return;
        return Differ("the global batch, which strong scaling keeps constant",
                      absl::StrCat(base_.global_batch),
                      absl::StrCat(cell_.global_batch), fix);
      case Scaling::kWeak:
        if (base_.rank_batch == cell_.rank_batch) return;
        return Differ("the batch per rank, which weak scaling keeps constant",
                      BatchText(base_.rank_batch), BatchText(cell_.rank_batch),
                      fix);
      case Scaling::kFixedMemory:
        return CheckMemory(fix);
    }
  }

  void CheckMemory(const std::string& fix) {
    for (const Cell* cell : Cells()) {
      if (cell->peak_bytes > 0) continue;
      return Add("the peak memory of ", cell->Name(),
                 ", which fixed-memory scaling keeps constant, is not in its "
                 "records: run it again, as trainers record it now");
    }
    const double base = base_.peak_bytes, peak = cell_.peak_bytes;
    if (std::abs(peak - base) <= kMemoryTolerance * base) return;
    Differ(
        "the peak memory of a rank, which fixed-memory scaling keeps constant",
        MegabytesText(base), MegabytesText(peak), fix);
  }

  const Cell& base_;
  const Cell& cell_;
  Reasons reasons_;
};

// Whether `other` may be the base case of `cell`, judging by its setup.
bool Fits(const Cell& other, const Cell& cell, Scaling scaling) {
  PairCheck comparison(other, cell);
  comparison.CheckFinal(scaling);
  comparison.CheckSetup();
  return comparison.reasons().empty();
}

Ratio Speedup(const Cell& base, const Cell& cell) {
  return RatioOf(cell.Values(&Throughput::examples_per_second),
                 base.Values(&Throughput::examples_per_second));
}

// Returns the fastest comparable candidate, or nullptr.
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

// Returns the cells of `cell`'s trainer and schedule with the fewest ranks.
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
  PairCheck comparison(base, cell);
  if (!config.force) comparison.CheckFixable(config);
  comparison.CheckFinal(scaling);
  return comparison.FirstReason();
}

absl::Status CheckEfficiency(const Cell& base, const Cell& cell,
                             Scaling scaling, const ComparisonConfig& config) {
  RETURN_IF_ERROR(CheckComparable(base, cell, scaling, config));
  PairCheck comparison(base, cell);
  if (!config.force) comparison.CheckRepetitions();
  return comparison.FirstReason();
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
  // A cell of several ranks is its own base only without another candidate:
  // otherwise it would hide that none is comparable.
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
  PairCheck forced(base, cell);
  forced.CheckFixable(config);
  forced.CheckRepetitions();
  result.warning = absl::StrJoin(forced.reasons(), "; ");
  return result;
}

}  // namespace rankwise
