
#include <algorithm>
#include <cmath>
#include <string>

#include "analysis/report/report_data.h"

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
  const auto parameter_data = [](const LawParameter& parameter) {
    return json{{"name", parameter.name},
                {"value", parameter.value},
                {"interval", IntervalData(parameter.interval)}};
  };
  json ranks = json::array(), speedups = json::array();
  const double furthest = kDrawnBeyond * max_ranks / base_ranks;
  for (int i = 0; i <= kCurvePoints; ++i) {
    const double n = std::pow(furthest, static_cast<double>(i) / kCurvePoints);
    ranks.push_back(n * base_ranks);
    speedups.push_back(law.Speedup(n));
  }
  return {
      {"name", ScalingLawName(law.law)},
      {"parameters", DataOfEach(law.parameters, parameter_data)},
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

json SerialFractionData(const SerialFraction& fraction) {
  return {{"ranks", fraction.world_size},
          {"value", fraction.value},
          {"interval", IntervalData(fraction.interval)}};
}

json OneSeriesData(const Answer& answer, const ScalingSeries& series) {
  const double base_ranks = BaseRanks(series);
  double max_ranks = 1;
  for (const ScalingRow* row : series.rows) {
    max_ranks =
        std::max(max_ranks, static_cast<double>(row->cell->run.world_size));
  }
  const auto point_data = [&answer](const ScalingRow* row) {
    return json{{"cell", CellIndex(answer.cells, row->cell)},
                {"efficiency", EfficiencyData(*row)},
                {"is_base", row->base == nullptr}};
  };
  const auto law_data = [=](const FittedLaw& law) {
    return LawData(law, base_ranks, max_ranks);
  };
  return {{"trainer", series.trainer},
          {"scaling", std::string(ScalingName(series.scaling))},
          {"base_ranks", base_ranks},
          {"points", DataOfEach(series.rows, point_data)},
          {"laws", DataOfEach(series.laws, law_data)},
          {"serial_fractions",
           DataOfEach(series.serial_fractions, SerialFractionData)},
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

json RankLedgerData(const RankLedger& rank) {
  return {{"rank", rank.rank},
          {"stage", rank.stage},  // -1: the rank is one place
          {"parts", PartsData(rank.parts)}};
}

json LedgerData(const Answer& answer, const CellLedger& of_cell) {
  return {{"cell", CellIndex(answer.cells, of_cell.cell)},
          {"critical", PartsData(of_cell.ledger.critical)},
          {"ranks", DataOfEach(of_cell.ledger.ranks, RankLedgerData)},
          {"imbalance_seconds", of_cell.ledger.imbalance_seconds},
          {"noise_seconds", of_cell.ledger.noise_seconds},
          {"residual_share", of_cell.ledger.median_residual_share},
          {"captured_seconds", of_cell.ledger.captured_seconds},
          {"separates_bubble", of_cell.ledger.separates_bubble}};
}

json LossData(const Loss& loss) {
  return {{"cause", LossName(loss.cause)},
          {"remedy", Remedy(loss.cause)},
          {"seconds", loss.seconds},
          {"points", loss.efficiency_points}};
}

json WaterfallData(const Answer& answer, const Waterfall& waterfall) {
  return {{"cell", CellIndex(answer.cells, waterfall.cell)},
          {"base", CellIndex(answer.cells, waterfall.base)},
          {"scaling", std::string(ScalingName(waterfall.scaling))},
          {"ideal_seconds", waterfall.ideal_seconds},
          {"measured_seconds", waterfall.measured_seconds},
          {"losses", DataOfEach(waterfall.losses, LossData)},
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

template <typename List, typename DataOf>
json DataOfAll(const Answer& answer, const List& list, const DataOf& data_of) {
  return DataOfEach(list,
                    [&](const auto& one) { return data_of(answer, one); });
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
