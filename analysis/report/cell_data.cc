#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/report/report.h"
#include "analysis/runs/throughput.h"
#include "records/record.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

json PipelineData(const Cell& cell) {
  const std::vector<PipelineUse>& uses = cell.pipelines;
  if (uses.empty()) return nullptr;
  std::vector<double> errors;
  for (const PipelineUse& use : uses) errors.push_back(use.PredictionError());
  const PipelineUse& first = uses.front();
  return {
      {"stages", first.stages},
      {"replicas", first.replicas},
      {"micro_batches", first.micro_batches},
      {"wall_bubble", MedianOf(cell, &PipelineUse::wall_bubble)},
      {"span_bubble", MedianOf(cell, &PipelineUse::span_bubble)},
      {"seconds", MedianOf(cell, &PipelineUse::schedule_seconds)},
      {"predicted_wall_bubble",
       MedianOf(cell, &PipelineUse::predicted_wall_bubble)},
      {"predicted_span_bubble",
       MedianOf(cell, &PipelineUse::predicted_span_bubble)},
      {"predicted_seconds", MedianOf(cell, &PipelineUse::predicted_seconds)},
      {"error", Median(errors)},
  };
}

json MemoryPartsData(const MemoryParts& parts) {
  return {{"parameters", parts.parameter_bytes},
          {"gradients", parts.gradient_bytes},
          {"optimizer", parts.optimizer_bytes},
          {"unsharded", parts.unsharded_bytes},
          {"activations", parts.activation_bytes}};
}

// Null: not known.
json MemoryData(const Cell& cell) {
  if (!cell.memory.has_value()) return nullptr;
  return {{"rank", cell.memory->rank},
          {"measured", MemoryPartsData(cell.memory->measured)},
          {"computed_bytes", TotalBytes(cell.memory->computed)}};
}

std::vector<std::string> Marks(const Cell& cell) {
  std::vector<std::string> marks;
  if (cell.oversubscribed) marks.push_back("more threads than cores");
  if (!cell.shared_device.empty()) {
    marks.push_back(absl::StrCat("ranks shared ", cell.shared_device));
  }
  if (cell.several_devices_per_rank) {
    marks.push_back("several devices per rank");
  }
  if (cell.repetitions.front().captured) marks.push_back("captured steps");
  return marks;
}

std::string FlagText(const std::string& name, const std::string& value) {
  if (name != "skip_communication") return absl::StrCat(", ", name, "=", value);
  return value == "true" ? ", without communication" : "";
}

// Each cell's label, followed by the flags in which cells of that label differ,
// except those that say where a run's files are.
std::vector<std::string> LabelsOf(absl::Span<const Cell> cells) {
  std::map<std::pair<std::string, std::string>, std::set<std::string>> values;
  for (const Cell& cell : cells) {
    for (const auto& [name, value] : cell.run.flags) {
      if (FollowsWorldSizeOrOutput(name) && !IsShapeFlag(name)) continue;
      values[{CellLabel(cell), name}].insert(value);
    }
  }
  std::vector<std::string> labels;
  for (const Cell& cell : cells) {
    const std::string own = CellLabel(cell);
    std::string& label = labels.emplace_back(own);
    for (const auto& [name, value] : cell.run.flags) {
      if (values[{own, name}].size() > 1) label += FlagText(name, value);
    }
  }
  return labels;
}

json CellData(const Cell& cell, const RateColumn& rate) {
  return {
      {"name", cell.Name()},
      {"trainer", cell.Trainer()},
      {"ablation", cell.IsAblation()},
      {"ranks", cell.run.world_size},
      {"rank_batch", cell.rank_batch},
      {"global_batch", cell.global_batch},
      {"runs", cell.repetitions.size()},
      {"examples_per_second", cell.ExamplesPerSecond()},
      {"rate", rate.Of(cell, cell.ExamplesPerSecond())},
      {"step_seconds", MedianOf(cell, &Throughput::step_seconds)},
      {"comm_wait_share", MedianOf(cell, &Throughput::comm_wait_share)},
      {"data_wait_share", MedianOf(cell, &Throughput::data_wait_share)},
      {"peak_bytes", cell.peak_bytes},  // 0: not known
      {"memory", MemoryData(cell)},
      {"mfu", ModelFlopsUtilization(cell)},  // NaN, null in JSON: not known
      {"peak_tflops", cell.peak_tflops},     // 0: not known
      {"peak_is_measured", cell.peak_is_measured},
      {"memory_share", MemoryBandwidthShare(cell)},  // likewise
      {"marks", Marks(cell)},
      {"pipeline", PipelineData(cell)},
  };
}

std::map<std::string, std::string> SharedFlags(absl::Span<const Cell> cells) {
  if (cells.empty()) return {};
  std::map<std::string, std::string> shared = cells.front().run.flags;
  for (const Cell& cell : cells) {
    std::erase_if(shared, [&cell](const auto& flag) {
      const auto other = cell.run.flags.find(flag.first);
      return other == cell.run.flags.end() || *other != flag;
    });
  }
  return shared;
}

}  // namespace

json IntervalData(const Interval& interval) {
  if (!std::isfinite(interval.low) || !std::isfinite(interval.high)) {
    return nullptr;
  }
  return json::array({interval.low, interval.high});
}

json CellIndex(absl::Span<const Cell> cells, const Cell* cell) {
  const bool is_among = cell >= cells.begin() && cell < cells.end();
  return is_among ? json(cell - cells.begin()) : json(nullptr);
}

json CellsData(absl::Span<const Cell> cells) {
  json data = json::array();
  const RateColumn rate(cells);
  const std::vector<std::string> labels = LabelsOf(cells);
  for (size_t i = 0; i < cells.size(); ++i) {
    data.push_back(CellData(cells[i], rate));
    data.back()["label"] = labels[i];
  }
  return data;
}

json OriginData(absl::Span<const Cell> cells) {
  std::map<json, std::set<std::string>> machines;  // with their devices
  std::set<json> versions;
  std::set<std::string> code;
  std::set<int64_t> threads;
  for (const Cell& cell : cells) {
    const RunRecord& run = cell.run;
    machines[{{"hostname", run.host.hostname},
              {"cpu_model", run.host.cpu_model},
              {"cores", run.host.cores},
              {"memory_bytes", run.host.memory_bytes}}]
        .insert(cell.devices.begin(), cell.devices.end());
    versions.insert(json::object({{"torch", run.versions.torch},
                                  {"cuda", run.versions.cuda},
                                  {"nccl", run.versions.nccl},
                                  {"compiler", run.versions.compiler}}));
    code.insert(cell.code_versions.begin(), cell.code_versions.end());
    threads.insert(run.threads_per_rank);
  }
  json of_machines = json::array();
  for (const auto& [machine, devices] : machines) {
    of_machines.push_back(machine);
    of_machines.back()["devices"] = devices;
  }
  return {{"machines", of_machines},
          {"versions", versions},
          {"code", code},
          {"threads_per_rank", threads},
          {"flags", SharedFlags(cells)}};
}

}  // namespace rankwise
