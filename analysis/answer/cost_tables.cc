// Tables of what communication costs, of layers and of predictions.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/tables.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/prediction.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

// The size of a message, in powers of 1024.
Figure Size(double bytes) {
  if (std::isnan(bytes)) return Number(bytes, "-");
  return Number(bytes, FormatBytes(std::llround(bytes)));
}

void AddCurve(const NetworkModel& network, const std::string& collective,
              const CostCurve& curve, Table& table) {
  const std::vector<CostPoint>& points = curve.points;
  const CostLine& line = curve.line;
  const double unknown = std::nan("");
  table.AddRow();
  table.Add("network", "network", Word(network.name), kLeft);
  table.Add("collective", "collective", Word(collective), kLeft);
  table.Add("ranks", "ranks", Whole(curve.world_size));
  table.Add("from", "min_bytes",
            Size(points.empty() ? unknown : points.front().bytes));
  table.Add("to", "max_bytes",
            Size(points.empty() ? unknown : points.back().bytes));
  table.Add("α µs", "alpha_seconds", Digits(line.alpha_seconds, 1e6));
  table.Add(
      "95 %", "alpha_seconds_low,alpha_seconds_high",
      Ends(line.alpha_interval, [](double x) { return DigitsText(1e6 * x); }));
  table.Add("β ns/B", "beta_seconds_per_byte",
            Digits(line.beta_seconds_per_byte, 1e9));
  table.Add(
      "95 %", "beta_seconds_per_byte_low,beta_seconds_per_byte_high",
      Ends(line.beta_interval, [](double x) { return DigitsText(1e9 * x); }));
  table.Add("off the line", "median_relative_error",
            Share(curve.median_relative_error));
  table.Add("between sizes", "interpolation_error",
            Share(curve.InterpolationError()));
}

Table CostTable(const Answer& answer) {
  Table table = {"cost-table", "Costs of communication: α + β · bytes", "", "",
                 /*on_terminal=*/false};
  for (const NetworkModel& network : answer.networks) {
    for (const CollectiveCosts& costs : network.collectives) {
      for (const CostCurve& curve : costs.curves)
        AddCurve(network, costs.collective, curve, table);
    }
    for (const CollectiveCosts& costs : network.across_hosts) {
      for (const CostCurve& curve : costs.curves)
        AddCurve(network, costs.collective + " across hosts", curve, table);
    }
  }
  return table;
}

// `scored`: nullptr if the size was not measured.
void AddPrediction(const Prediction& prediction, const ScoredPrediction* scored,
                   Table& table) {
  const double measured =
      scored == nullptr ? std::nan("") : scored->measured_seconds;
  const bool judged = scored != nullptr && scored->counts_for_coverage;
  const std::string unit = prediction.unit.RateName();
  const std::string name = prediction.layout.Name();
  for (const std::string& line : prediction.extrapolations) {
    const std::string note =
        absl::StrCat("* Beyond what was measured: ", line, ".\n");
    if (!absl::StrContains(table.notes, note)) table.notes += note;
  }
  table.AddRow();
  table.Add("layout", "layout",
            {absl::StrCat(name, prediction.extrapolated() ? " *" : ""), {name}},
            kLeft);
  table.Add("ranks", "ranks", Whole(prediction.layout.ranks()));
  table.Add("batch", "micro_batch", Whole(prediction.layout.micro_batch));
  table.Add("step ms", "predicted_seconds",
            Milliseconds(prediction.step_seconds));
  table.Add("step interval", "predicted_seconds_low,predicted_seconds_high",
            Ends(prediction.step_interval, MillisecondsColumn));
  table.Add(unit, RateName(unit),
            Fixed(prediction.unit.Rate(prediction.examples_per_second), 0));
  table.Add("rate interval", "rate_low,rate_high", RateEnds(prediction));
  table.Add("interval is", "interval_is",
            Word(IntervalKind(prediction.conditions)));
  table.Add("exposed comm ms", "exposed_comm_seconds",
            Milliseconds(prediction.exposed_comm_seconds));
  table.Add("link ms", "link_seconds", Milliseconds(prediction.link_seconds), 0,
            MillisecondsColumn(0));
  table.Add("bubble ms", "bubble_seconds",
            Milliseconds(prediction.bubble_seconds), 0, MillisecondsColumn(0));
  table.Add("peak MB", "peak_bytes", Megabytes(prediction.peak_bytes), 0, "-");
  table.Add("measured ms", "measured_seconds", Milliseconds(measured), 0, "-");
  table.Add("error", "error",
            SignedShare(prediction.step_seconds / measured - 1), 0, "-");
  table.Add("in the interval", "covered",
            Word(!judged               ? ""
                 : scored->IsCovered() ? "yes"
                                       : "no"),
            0, "");
  table.Add("extrapolated", "extrapolations",
            Word(absl::StrJoin(prediction.extrapolations, "; ")), kInFile);
  table.Add("assumptions", "assumptions",
            Word(absl::StrJoin(prediction.assumptions, "; ")),
            kWrapped | kNotOnTerminal, "");
}

Table PredictionsTable(const Answer& answer) {
  Table table = {"prediction-table", "Predictions",
                 "Predicted steps, with the measured step of each held-out "
                 "size:"};
  for (const Score& score : answer.scores) {
    for (const ScoredPrediction& point : score.points)
      AddPrediction(point.prediction, &point, table);
  }
  for (const Prediction& prediction : answer.predictions)
    AddPrediction(prediction, nullptr, table);
  return table;
}

LayerPass PassOf(const Cell& cell, const std::string& layer,
                 const char* direction, const std::vector<double>& seconds,
                 double flops, double bytes) {
  LayerPass pass = {layer, direction, Median(seconds), flops, bytes};
  if (pass.seconds > 0) {
    pass.bytes_per_second = bytes / pass.seconds;
    if (flops > 0) pass.flops_per_second = flops / pass.seconds;
  }
  if (flops > 0 && bytes > 0) pass.flops_per_byte = flops / bytes;
  if (cell.peak_tflops > 0 && cell.peak_bytes_per_second > 0) {
    const double compute = flops / (1e12 * cell.peak_tflops);
    const double memory = bytes / cell.peak_bytes_per_second;
    pass.limit_seconds = std::max(compute, memory);
    pass.bound = compute >= memory ? "compute" : "memory";
  }
  return pass;
}

// Includes rows that the fits ignore because of their layer or timing.
Table CallTable(absl::Span<const Configuration> calls) {
  Table table = {"call-table", "Calls that were measured", "", "",
                 /*on_terminal=*/false};
  for (const Configuration& call : calls) {
    // Adds a part of the identity. The page hides it if every call has the
    // value `silent`.
    const auto add = [&](const char* name,
                         std::optional<std::string> silent = std::nullopt) {
      const auto found = call.identity.find(name);
      table.Add(name, name,
                Word(found == call.identity.end() ? "" : found->second), kLeft,
                std::move(silent));
    };
    const double seconds = Median(call.samples.at("call_seconds"));
    const double rate = call.bytes > 0 && seconds > 0
                            ? static_cast<double>(call.bytes) / seconds
                            : std::nan("");
    table.AddRow();
    for (const char* name : {"collective", "layer", "backend"}) add(name);
    table.Add("ranks", "ranks", Whole(call.ranks));
    add("hosts", "1");
    table.Add("size", "bytes", Size(static_cast<double>(call.bytes)));
    add("dtype");
    add("group", "");
    add("in place", "no");
    add("in flight", "1");
    add("cache", "hot");
    add("sync", "barrier");
    add("timing");
    add("graph", "no");
    add("registered", "no");
    add("algorithm", "");
    add("protocol", "");
    table.Add("launches", "launches",
              Whole(std::ssize(call.samples.at("call_seconds"))));
    table.Add("median µs", "seconds", Digits(seconds, 1e6));
    table.Add("algbw GB/s", "algbw_bytes_per_second", Digits(rate, 1e-9));
    table.Add("busbw GB/s", "busbw_bytes_per_second",
              Digits(call.bus_factor * rate, 1e-9));
  }
  return table;
}

}  // namespace

std::vector<LayerPass> PassesOf(const LayerProfile& profile) {
  std::vector<LayerPass> passes;
  for (const LayerRecord& layer : profile.layers) {
    passes.push_back(PassOf(*profile.cell, layer.name, "forward",
                            layer.forward_seconds, layer.forward_flops,
                            layer.forward_bytes));
    passes.push_back(PassOf(*profile.cell, layer.name, "backward",
                            layer.backward_seconds, layer.backward_flops,
                            layer.backward_bytes));
  }
  return passes;
}

std::vector<Table> LayerTables(const Answer& answer) {
  const Labels labels(answer.cells);
  std::vector<Table> tables;
  for (const LayerProfile& profile : answer.profiles) {
    Table table = {absl::StrCat("layer-table-", tables.size()),
                   absl::StrCat("Layers of ", labels.Of(profile.cell)), "", "",
                   /*on_terminal=*/false};
    const std::vector<LayerPass> passes = PassesOf(profile);
    double seconds = 0;
    for (const LayerPass& pass : passes) seconds += pass.seconds;
    for (const LayerPass& pass : passes) {
      table.AddRow();
      table.Add("layer", "layer", Word(pass.layer), kLeft);
      table.Add("pass", "pass", Word(pass.direction), kLeft);
      table.Add("ms", "seconds", Digits(pass.seconds, 1e3));
      table.Add("of all", "share_of_all", Share(pass.seconds / seconds));
      table.Add("GFLOP/s", "flops_per_second",
                Digits(pass.flops_per_second, 1e-9));
      table.Add("GB/s", "bytes_per_second",
                Digits(pass.bytes_per_second, 1e-9));
      table.Add("FLOP/byte", "flops_per_byte", Digits(pass.flops_per_byte));
      table.Add("bound", "bound", Word(pass.bound), kLeft, "");
      table.Add("limit ms", "limit_seconds", Digits(pass.limit_seconds, 1e3), 0,
                "-");
      table.Add("of it", "limit_share",
                Share(pass.limit_seconds / pass.seconds), 0, "-");
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

std::vector<Table> CostTables(const Answer& answer) {
  return {CostTable(answer), CallTable(answer.calls), PredictionsTable(answer)};
}

}  // namespace rankwise
