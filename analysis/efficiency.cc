#include "analysis/efficiency.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "records/config_hash.h"

namespace rankwise {
namespace {

absl::Status Differ(const Cell& base, const Cell& cell, absl::string_view what,
                    absl::string_view base_value, absl::string_view value) {
  return absl::FailedPreconditionError(
      absl::StrCat(cell.Name(), " and its base case ", base.Name(),
                   " differ in ", what, ": ", value, " and ", base_value));
}

// Flags that only one of the two trainers has are not compared.
absl::Status CheckFlags(const Cell& base, const Cell& cell) {
  for (const auto& [name, value] : cell.run.flags) {
    if (FollowsWorldSizeOrOutput(name)) continue;
    const auto other = base.run.flags.find(name);
    if (other == base.run.flags.end() || other->second == value) continue;
    return Differ(base, cell, absl::StrCat("--", name),
                  absl::StrCat("\"", other->second, "\""),
                  absl::StrCat("\"", value, "\""));
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const Cell& base, const Cell& cell, Scaling scaling) {
  const bool strong = scaling == Scaling::kStrong;
  const auto held_of = [strong](const Cell& c) {
    return strong ? static_cast<double>(c.global_batch) : c.rank_batch;
  };
  const double held = held_of(cell), base_held = held_of(base);
  if (held == base_held) return absl::OkStatus();
  return Differ(base, cell,
                strong ? "the global batch, which strong scaling holds equal"
                       : "the batch per rank, which weak scaling holds equal",
                BatchText(base_held), BatchText(held));
}

// "cpu", or "cuda" for "cuda:1".
std::string DeviceKind(const Cell& cell) {
  if (cell.run.devices.empty()) return "";
  return cell.run.devices[0].substr(0, cell.run.devices[0].find(':'));
}

absl::Status CheckMachine(const Cell& base, const Cell& cell) {
  const RunRecord& a = base.run;
  const RunRecord& b = cell.run;
  if (a.threads_per_rank != b.threads_per_rank) {
    return Differ(base, cell, "threads per rank",
                  absl::StrCat(a.threads_per_rank),
                  absl::StrCat(b.threads_per_rank));
  }
  if (DeviceKind(base) != DeviceKind(cell)) {
    return Differ(base, cell, "the device", DeviceKind(base), DeviceKind(cell));
  }
  if (a.host.cpu_model != b.host.cpu_model) {
    return Differ(base, cell, "the CPU", a.host.cpu_model, b.host.cpu_model);
  }
  if (a.versions.torch != b.versions.torch) {
    return Differ(base, cell, "the version of torch", a.versions.torch,
                  b.versions.torch);
  }
  return absl::OkStatus();
}

absl::Status CheckDevices(const Cell& cell) {
  if (cell.several_devices_per_rank) {
    return absl::FailedPreconditionError(
        absl::StrCat("a rank of ", cell.Name(),
                     " used several devices, and efficiency "
                     "compares ranks of one device each"));
  }
  if (cell.shared_device.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "two ranks of ", cell.Name(), " shared the device ", cell.shared_device));
}

absl::Status CheckRepetitions(const Cell& cell) {
  if (cell.repetitions.size() >= 2) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      cell.Name(), " has ", cell.repetitions.size(),
      " repetition, and an interval needs 2 or more: pass --repetitions"));
}

}  // namespace

absl::string_view ScalingName(Scaling scaling) {
  return scaling == Scaling::kStrong ? "strong" : "weak";
}

absl::Status CheckComparable(const Cell& base, const Cell& cell,
                             Scaling scaling) {
  absl::Status status = CheckFlags(base, cell);
  if (status.ok()) status = CheckMachine(base, cell);
  if (status.ok()) status = CheckBatch(base, cell, scaling);
  if (status.ok()) status = CheckDevices(base);
  if (status.ok()) status = CheckDevices(cell);
  return status;
}

absl::StatusOr<const Cell*> FindBase(absl::Span<const Cell> cells,
                                     const Cell& cell, Scaling scaling) {
  std::vector<const Cell*> candidates;
  for (const Cell& other : cells) {
    if (other.run.binary == "single") candidates.push_back(&other);
  }
  if (candidates.empty()) {
    int64_t smallest = cell.run.world_size;
    for (const Cell& other : cells) {
      if (other.Trainer() != cell.Trainer()) continue;
      if (other.run.world_size < smallest) candidates.clear();
      smallest = std::min(smallest, other.run.world_size);
      if (other.run.world_size == smallest) candidates.push_back(&other);
    }
  }
  for (const Cell* candidate : candidates) {
    if (CheckComparable(*candidate, cell, scaling).ok()) return candidate;
  }
  if (!candidates.empty()) return candidates[0];
  return absl::NotFoundError(absl::StrCat(
      "there is no base case for ", cell.Name(),
      ": run \"single\" or a smaller world size in the same study"));
}

absl::StatusOr<Efficiency> CompareToBase(const Cell& base, const Cell& cell,
                                         Scaling scaling,
                                         const BootstrapConfig& config) {
  absl::Status status = CheckComparable(base, cell, scaling);
  if (status.ok()) status = CheckRepetitions(base);
  if (status.ok()) status = CheckRepetitions(cell);
  if (!status.ok()) return status;
  const std::vector<double> rates = cell.Values(&Throughput::images_per_second);
  const std::vector<double> base_rates =
      base.Values(&Throughput::images_per_second);
  const double ideal = static_cast<double>(cell.run.world_size) /
                       static_cast<double>(base.run.world_size);
  Efficiency result;
  result.speedup = Median(rates) / Median(base_rates);
  result.speedup_interval = BootstrapRatioOfMedians(rates, base_rates, config);
  result.efficiency = result.speedup / ideal;
  result.efficiency_interval = {result.speedup_interval.low / ideal,
                                result.speedup_interval.high / ideal};
  return result;
}

}  // namespace rankwise
