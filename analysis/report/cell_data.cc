#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/report/report.h"
#include "analysis/runs/throughput.h"
#include "records/record.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

json MemoryPartsData(const MemoryParts& parts) {
  return {{"parameters", parts.parameter_bytes},
          {"gradients", parts.gradient_bytes},
          {"optimizer", parts.optimizer_bytes},
          {"unsharded", parts.unsharded_bytes},
          {"activations", parts.activation_bytes}};
}

// Returns null if the memory was not recorded.
json MemoryData(const Cell& cell) {
  if (!cell.memory.has_value()) return nullptr;
  return {{"rank", cell.memory->rank},
          {"measured", MemoryPartsData(cell.memory->measured)},
          {"computed_bytes", TotalBytes(cell.memory->computed)}};
}

json CellData(const Cell& cell, const RateColumn& rate,
              const std::string& label) {
  return {
      {"label", label},
      {"trainer", cell.Trainer()},
      {"ablation", cell.IsAblation()},
      {"ranks", cell.run.world_size},
      {"rank_batch", cell.rank_batch},
      {"global_batch", cell.global_batch},
      {"runs", cell.repetitions.size()},
      {"rate", rate.Of(cell, cell.ExamplesPerSecond())},
      {"step_seconds", MedianOf(cell, &Throughput::step_seconds)},
      {"memory", MemoryData(cell)},
      {"marks", MarksOf(cell)},
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

json CellIndex(absl::Span<const Cell> cells, const Cell* cell) {
  const bool is_among = cell >= cells.begin() && cell < cells.end();
  return is_among ? json(cell - cells.begin()) : json(nullptr);
}

json CellsData(absl::Span<const Cell> cells) {
  json data = json::array();
  const RateColumn rate(cells);
  const std::vector<std::string> labels = CellLabels(cells);
  for (size_t i = 0; i < cells.size(); ++i)
    data.push_back(CellData(cells[i], rate, labels[i]));
  return data;
}

json OriginData(absl::Span<const Cell> cells) {
  std::map<json, std::set<std::string>> machines;  // devices by machine
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
