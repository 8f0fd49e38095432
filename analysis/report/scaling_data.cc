#include "analysis/report/scaling_data.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "analysis/report/cell_data.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

constexpr int kCurvePoints = 40;
constexpr double kDrawnBeyond = 2;  // times the largest measured size

json EfficiencyData(const ScalingRow& row) {
  if (!row.efficiency.ok()) return nullptr;
  const Efficiency& efficiency = *row.efficiency;
  return {
      {"speedup", efficiency.speedup},
      {"speedup_interval", IntervalData(efficiency.speedup_interval)},
      {"efficiency", efficiency.efficiency},
      {"efficiency_interval", IntervalData(efficiency.efficiency_interval)},
      {"warning", efficiency.warning},
  };
}

json RowData(const Answer& answer, const ScalingRow& row) {
  return {
      {"cell", CellIndex(answer.cells, row.cell)},
      {"base", CellIndex(answer.cells, row.base)},
      {"scaling", row.scaling},
      {"efficiency", EfficiencyData(row)},
      {"refusal", std::string(row.efficiency.status().message())},
  };
}

// `base_ranks`: a law counts ranks in units of these.
json LawData(const FittedLaw& law, double base_ranks, double max_ranks) {
  json parameters = json::array();
  for (const LawParameter& parameter : law.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"value", parameter.value},
                          {"interval", IntervalData(parameter.interval)}});
  }
  json ranks = json::array(), speedups = json::array();
  const double furthest = kDrawnBeyond * max_ranks / base_ranks;
  for (int i = 0; i <= kCurvePoints; ++i) {
    const double n = std::pow(furthest, static_cast<double>(i) / kCurvePoints);
    ranks.push_back(n * base_ranks);
    speedups.push_back(law.Speedup(n));
  }
  return {
      {"name", ScalingLawName(law.law)},
      {"parameters", parameters},
      {"error", law.median_relative_error},
      {"best_ranks", law.best_ranks * base_ranks},
      {"ranks", ranks},
      {"speedups", speedups},
  };
}

// Of the rows with a base: that base's ranks; 1 without any.
double BaseRanks(const ScalingSeries& series) {
  for (const ScalingRow* row : series.rows) {
    if (row->base != nullptr) {
      return static_cast<double>(row->base->run.world_size);
    }
  }
  return 1;
}

json OneSeriesData(const Answer& answer, const ScalingSeries& series) {
  json points = json::array();
  double max_ranks = 1;
  for (const ScalingRow* row : series.rows) {
    const double ranks = static_cast<double>(row->cell->run.world_size);
    max_ranks = std::max(max_ranks, ranks);
    points.push_back({{"cell", CellIndex(answer.cells, row->cell)},
                      {"efficiency", EfficiencyData(*row)},
                      {"is_base", row->base == nullptr}});
  }
  const double base_ranks = BaseRanks(series);
  json laws = json::array();
  for (const FittedLaw& law : series.laws) {
    laws.push_back(LawData(law, base_ranks, max_ranks));
  }
  json serial = json::array();
  for (const SerialFraction& one : series.serial_fractions) {
    serial.push_back({{"ranks", one.world_size},
                      {"value", one.value},
                      {"interval", IntervalData(one.interval)}});
  }
  return {{"trainer", series.trainer},
          {"scaling", std::string(ScalingName(series.scaling))},
          {"base_ranks", base_ranks},
          {"points", points},
          {"laws", laws},
          {"serial_fractions", serial},
          {"serial_trend", series.serial_trend},
          {"no_law", series.no_law}};
}

json PartsData(const LedgerParts& parts) {
  return {{"compute", parts.compute_seconds},
          {"exposed_comm", parts.exposed_comm_seconds},
          {"bubble", parts.bubble_seconds},
          {"data_wait", parts.data_wait_seconds},
          {"residual", parts.residual_seconds}};
}

json LedgerData(const Answer& answer, const CellLedger& of_cell) {
  json ranks = json::array();
  for (const RankLedger& rank : of_cell.ledger.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"stage", rank.stage},  // -1: the rank is one place
                     {"parts", PartsData(rank.parts)}});
  }
  return {{"cell", CellIndex(answer.cells, of_cell.cell)},
          {"critical", PartsData(of_cell.ledger.critical)},
          {"ranks", ranks},
          {"imbalance_seconds", of_cell.ledger.imbalance_seconds},
          {"noise_seconds", of_cell.ledger.noise_seconds},
          {"residual_share", of_cell.ledger.median_residual_share},
          {"captured_seconds", of_cell.ledger.captured_seconds},
          {"separates_bubble", of_cell.ledger.separates_bubble}};
}

json WaterfallData(const Answer& answer, const Waterfall& waterfall) {
  json losses = json::array();
  for (const Loss& loss : waterfall.losses) {
    losses.push_back({{"cause", LossName(loss.cause)},
                      {"remedy", Remedy(loss.cause)},
                      {"seconds", loss.seconds},
                      {"points", loss.efficiency_points}});
  }
  return {{"cell", CellIndex(answer.cells, waterfall.cell)},
          {"base", CellIndex(answer.cells, waterfall.base)},
          {"scaling", std::string(ScalingName(waterfall.scaling))},
          {"ideal_seconds", waterfall.ideal_seconds},
          {"measured_seconds", waterfall.measured_seconds},
          {"losses", losses},
          {"merged", waterfall.merged}};
}

json AblationData(const Answer& answer, const Ablation& ablation) {
  return {{"cell", CellIndex(answer.cells, ablation.cell)},
          {"without", CellIndex(answer.cells, ablation.without)},
          {"saved_seconds", ablation.saved_seconds},
          {"exposed_seconds", ablation.exposed_seconds},
          {"bubble_seconds", ablation.bubble_seconds},
          {"slowed_seconds", ablation.slowed_seconds},
          {"captured", ablation.captured},
          {"disagreement", ablation.disagreement},
          {"exposed_disagreement", ablation.exposed_disagreement}};
}

// One element per member of `list`.
template <typename List, typename Data>
json DataOfAll(const Answer& answer, const List& list, Data data_of) {
  json data = json::array();
  for (const auto& one : list) data.push_back(data_of(answer, one));
  return data;
}

}  // namespace

json RowsData(const Answer& answer) {
  return DataOfAll(answer, answer.rows, RowData);
}

json SeriesData(const Answer& answer) {
  return DataOfAll(answer, answer.series, OneSeriesData);
}

json LedgersData(const Answer& answer) {
  return DataOfAll(answer, answer.ledgers, LedgerData);
}

json WaterfallsData(const Answer& answer) {
  return DataOfAll(answer, answer.waterfalls, WaterfallData);
}

json AblationsData(const Answer& answer) {
  return DataOfAll(answer, answer.ablations, AblationData);
}

}  // namespace rankwise
