#include "analysis/plan/output.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "nlohmann/json.hpp"
#include "records/text.h"

namespace rankwise::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBarColumns = 50;

double TokensPerRank(const Step& step) {
  return step.unit.Rate(step.examples_per_second) /
         static_cast<double>(step.layout.ranks());
}

std::string SecondsText(double seconds) {
  return absl::StrFormat("%.3g", seconds);
}

std::string ParametersText(double parameters) {
  return parameters < 1e9
             ? absl::StrFormat("%.3g million parameters", 1e-6 * parameters)
             : absl::StrFormat("%.3g billion parameters", 1e-9 * parameters);
}

std::string RangeText(const Interval& interval) {
  return IntervalText(interval,
                      [](double x) { return absl::StrFormat("%.3g", x); });
}

std::vector<std::string> RowOf(const Step& step) {
  const StepParts& parts = step.parts;
  const auto share = [&step](double seconds) {
    return absl::StrFormat("%.1f", 100 * seconds / step.step_seconds);
  };
  return {step.layout.MeshName(),
          step.layout.Details(),
          SecondsText(step.step_seconds),
          RangeText(step.step_interval),
          absl::StrFormat("%.0f", TokensPerRank(step)),
          absl::StrFormat("%.1f", 100 * step.mfu),
          absl::StrFormat("%.1f", 1e-9 * step.memory.sum()),
          share(parts.tp),
          share(parts.cp),
          share(parts.pp),
          share(parts.dp),
          share(parts.bubble),
          step.limit};
}

// Returns "Its MFU: 47.9 % [41.2, 57.0]; exposed communication: tp 0.93 s
// [0.75, 1.1]", without axes that have no exposed communication.
std::string IntervalsText(const Step& step) {
  std::vector<std::string> exposed;
  const auto add = [&exposed](const char* axis, double seconds,
                              const Interval& interval) {
    if (interval.high == 0) return;
    exposed.push_back(absl::StrCat(axis, " ", SecondsText(seconds), " s ",
                                   RangeText(interval)));
  };
  add("tp", step.parts.tp, step.exposed.tp);
  add("cp", step.parts.cp, step.exposed.cp);
  add("pp", step.parts.pp, step.exposed.pp);
  add("dp", step.parts.dp, step.exposed.dp);
  return absl::StrFormat(
      "Its MFU: %.1f %% [%.1f, %.1f]; exposed communication: %s",
      100 * step.mfu, 100 * step.mfu_interval.low, 100 * step.mfu_interval.high,
      exposed.empty() ? "none" : absl::StrJoin(exposed, ", "));
}

// A non-finite end becomes null.
Json IntervalJson(const Interval& interval) {
  return Json::array({interval.low, interval.high});
}

Json MemoryJson(const Memory& memory) {
  return {{"parameter_bytes", memory.parameters},
          {"gradient_bytes", memory.gradients},
          {"optimizer_bytes", memory.optimizer},
          {"unsharded_bytes", memory.unsharded},
          {"activation_bytes", memory.activations}};
}

Json LayoutJson(const Step& step) {
  const Layout& layout = step.layout;
  const StepParts& parts = step.parts;
  return {{"pp", layout.pp},
          {"dp", layout.dp},
          {"cp", layout.cp},
          {"tp", layout.tp},
          {"zero", layout.zero},
          {"schedule", layout.pp > 1 ? layout.schedule : ""},
          {"stages_per_rank", layout.stages_per_rank()},
          {"micro_batch", layout.micro_batch},
          {"micro_batches", layout.micro_batches},
          {"recompute", layout.recompute == Recompute::kFull},
          {"sequence_parallel", layout.sequence_parallel},
          {"step_seconds", step.step_seconds},
          {"step_interval", IntervalJson(step.step_interval)},
          {"tokens_per_second_and_rank", TokensPerRank(step)},
          {"mfu", step.mfu},
          {"mfu_interval", IntervalJson(step.mfu_interval)},
          {"seconds",
           {{"compute", parts.compute},
            {"recompute", parts.recompute},
            {"update", parts.update},
            {"exposed_tp", parts.tp},
            {"exposed_cp", parts.cp},
            {"exposed_pp", parts.pp},
            {"exposed_dp", parts.dp},
            {"bubble", parts.bubble}}},
          {"intervals",
           {{"exposed_tp", IntervalJson(step.exposed.tp)},
            {"exposed_cp", IntervalJson(step.exposed.cp)},
            {"exposed_pp", IntervalJson(step.exposed.pp)},
            {"exposed_dp", IntervalJson(step.exposed.dp)}}},
          {"memory", MemoryJson(step.memory)},
          {"limited_by", step.limit}};
}

std::string LeftOutText(const SearchResult& result) {
  if (result.left_out == 0) return "";
  return absl::StrCat("Not simulated, though possibly faster: ",
                      Counted(result.left_out, "layout"), ", such as ",
                      result.why_left_out, ".\n");
}

}  // namespace

std::string SettingText(const Setting& setting) {
  const auto& [model, engine, cluster] = setting;
  const Device& device = cluster.device;
  return absl::StrFormat(
      "%s: %d blocks, width %d, %d heads, %d tokens, vocabulary %d: %s\n"
      "%s: %s per node, each %.3g TFLOP/s and %.3g GB\n",
      model.name, model.blocks, model.width, model.heads, model.sequence,
      model.vocabulary, ParametersText(model.Parameters()), cluster.name,
      Counted(cluster.devices_per_node, "device"), 1e-12 * device.peak_flops,
      1e-9 * device.memory_bytes);
}

std::string SearchText(const SearchResult& result, const Setting& setting,
                       absl::string_view precision) {
  TextTable table(
      {"mesh", "micro-batches and flags", "step s", "range", "tokens/s/rank",
       "MFU %", "GB", "tp %", "cp %", "pp %", "dp %", "bubble %", "limited by"},
      2);
  for (const Step& planned : result.best) table.AddRow(RowOf(planned));
  std::string text = absl::StrFormat(
      "\n%s, %s a step: %d layouts, of which %d may fit into memory "
      "and %d were simulated\n%s",
      Counted(result.ranks, "rank"), Counted(result.global_batch, "example"),
      result.layouts, result.fit, result.simulated, table.ToString());
  const Step& first = result.best.front();
  absl::StrAppend(&text, first.layout.MeshName(), " is the fastest");
  if (result.best.size() > 1) {
    const Step& next = result.best[1];
    absl::StrAppend(&text, ", ",
                    PercentText(next.step_seconds / first.step_seconds - 1),
                    " before ", next.layout.MeshName());
    if (next.step_seconds < first.step_interval.high)
      absl::StrAppend(&text, ", which is within its interval");
  }
  absl::StrAppend(&text, ". What limits it: ", first.limit, ".\n",
                  IntervalsText(first), "\n", LeftOutText(result),
                  ShortCoresText(setting.cluster),
                  CommandOf(setting.model, first.layout, precision), "\n");
  return text;
}

std::string ScalingChart(absl::Span<const SearchResult> results) {
  std::vector<double> rates;
  for (const SearchResult& result : results)
    rates.push_back(TokensPerRank(result.best.front()));
  const double most = *std::max_element(rates.begin(), rates.end());
  std::string text =
      absl::StrCat("\nTokens per second and rank of the best layout, against ",
                   Counted(results.front().ranks, "rank"), "\n");
  for (size_t i = 0; i < results.size(); ++i) {
    const Step& best = results[i].best.front();
    const auto columns = std::lround(rates[i] / most * kBarColumns);
    absl::StrAppendFormat(&text, "%7d |%-*s %5.1f %%  MFU %4.1f %%  %s\n",
                          results[i].ranks, kBarColumns,
                          std::string(columns, '#'), 100 * rates[i] / rates[0],
                          100 * best.mfu, best.layout.MeshName());
  }
  return text;
}

std::string PlanJson(absl::Span<const SearchResult> results,
                     const Setting& setting) {
  Json sizes = Json::array();
  for (const SearchResult& result : results) {
    Json layouts = Json::array();
    for (const Step& planned : result.best)
      layouts.push_back(LayoutJson(planned));
    sizes.push_back({{"ranks", result.ranks},
                     {"global_batch", result.global_batch},
                     {"layouts", result.layouts},
                     {"simulated", result.simulated},
                     {"left_out", result.left_out},
                     {"best", layouts}});
  }
  const Json json = {{"format", "rankwise plan"},
                     {"version", 1},
                     {"model", setting.model.name},
                     {"parameters", setting.model.Parameters()},
                     {"cluster", setting.cluster.name},
                     {"world_sizes", sizes}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace rankwise::plan
