#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/answer/answer.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/plan/score.h"
#include "analysis/report/answer_for_test.h"
#include "analysis/report/report.h"
#include "analysis/runs/cell.h"
#include "analysis/text/table.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using ::nlohmann::json;

Table TableNamed(const Answer& answer, const std::string& id) {
  for (Table& table : TablesOf(answer)) {
    if (table.id == id) return table;
  }
  ADD_FAILURE() << "there is no " << id;
  return {};
}

// Returns the field of the CSV column `name`.
std::string FieldOf(const Table& table, size_t row, const std::string& name) {
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const std::vector<std::string> names =
        absl::StrSplit(table.columns[i].names, ',');
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end())
      return table.rows[row][i].fields[found - names.begin()];
  }
  ADD_FAILURE() << table.id << " has no " << name;
  return "";
}

double NumberOf(const Table& table, size_t row, const std::string& name) {
  return std::stod(FieldOf(table, row, name));
}

TEST(ReportDataTest, HasEveryPartOfTheAnswer) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json data = ReportData(*answer);
  EXPECT_EQ(data["cells"].size(), answer->cells.size());
  EXPECT_EQ(data["series"].size(), answer->series.size());
  EXPECT_EQ(data["ledgers"].size(), answer->ledgers.size());
  EXPECT_EQ(data["waterfalls"].size(), answer->waterfalls.size());
  EXPECT_EQ(data["networks"].size(), answer->networks.size());
  EXPECT_EQ(data["scores"][0]["points"].size(), 2);
  EXPECT_EQ(data["predictions"].size(), answer->predictions.size());
  EXPECT_EQ(data["findings"][0]["title"], answer->findings[0].title);
  EXPECT_EQ(data["notes"], json(answer->notes));
}

TEST(ReportDataTest, LayoutsNameTheirCellsAndLedgers) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  ASSERT_FALSE(answer->layouts.empty());
  const json compared = ReportData(*answer)["layouts"];
  ASSERT_EQ(compared.size(), answer->layouts.size());
  for (size_t i = 0; i < compared.size(); ++i) {
    EXPECT_EQ(compared[i]["advice"], answer->layouts[i].advice);
    const json& rows = compared[i]["rows"];
    ASSERT_EQ(rows.size(), answer->layouts[i].rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      const LayoutRow& of_answer = answer->layouts[i].rows[row];
      EXPECT_EQ(&answer->cells[rows[row]["cell"]], of_answer.cell);
      if (rows[row]["ledger"].is_null()) continue;
      EXPECT_EQ(&answer->ledgers[rows[row]["ledger"]].ledger, of_answer.ledger);
    }
  }
}

TEST(TablesTest, ThePlannersScoreIsThatOfTheAnswer) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const Table layouts = TableNamed(*answer, "plan-score-table");
  ASSERT_EQ(layouts.rows.size(), 2u);
  EXPECT_EQ(FieldOf(layouts, 1, "layout"), "dp 2, 1 x 4, ZeRO 3");
  EXPECT_DOUBLE_EQ(NumberOf(layouts, 0, "planned_seconds"), 0.05);
  EXPECT_DOUBLE_EQ(NumberOf(layouts, 0, "planned_seconds_high"), 0.06);
  EXPECT_NEAR(NumberOf(layouts, 0, "error"), 0.05 / 0.055 - 1, 1e-12);
  EXPECT_EQ(FieldOf(layouts, 0, "covered"), "yes");
  const Table choices = TableNamed(*answer, "plan-choice-table");
  ASSERT_EQ(choices.rows.size(), 1u);
  EXPECT_NEAR(NumberOf(choices, 0, "regret"), 0.1, 1e-12);
  EXPECT_NE(choices.notes.find("Median regret 10.0 % of 1 choice."),
            std::string::npos);
  answer->plan_score.reset();
  for (const Table& table : TablesOf(*answer))
    EXPECT_EQ(table.id.find("plan-"), std::string::npos);
}

TEST(ReportDataTest, MemoryIsThatOfTheFullestRankByKind) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  answer->cells[1].memory.reset();
  const json cells = ReportData(*answer)["cells"];
  EXPECT_EQ(cells[0]["memory"]["rank"], 0);
  EXPECT_EQ(cells[0]["memory"]["measured"]["optimizer"], 200'000'000);
  EXPECT_EQ(cells[0]["memory"]["measured"]["unsharded"], 0);
  EXPECT_EQ(cells[0]["memory"]["computed_bytes"], 740'000'000);
  EXPECT_TRUE(cells[1]["memory"].is_null());
}

TEST(ReportDataTest, CoverageFromTooFewRunsIsNotKnown) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  Score& score = answer->scores[0];
  score.points[0].counts_for_coverage = false;
  score.coverage = std::numeric_limits<double>::quiet_NaN();
  const json data = ReportData(*answer)["scores"][0];
  EXPECT_TRUE(data["points"][0]["covered"].is_null());
  EXPECT_EQ(data["points"][1]["covered"], false);
  EXPECT_TRUE(nlohmann::json::parse(data.dump())["coverage"].is_null());
  EXPECT_DOUBLE_EQ(data["median_relative_width"], 0.12);
}

TEST(ReportDataTest, TimelinesKeepEverySpan) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json picture = ReportData(*answer)["timelines"][0];
  EXPECT_EQ(picture["step"], 42);
  ASSERT_EQ(picture["measured"].size(), 16);
  const json& span = picture["measured"][8];
  EXPECT_EQ(span["rank"], 1);
  EXPECT_EQ(span["action"], "F");
  EXPECT_DOUBLE_EQ(span["start"], 0.0031);
}

TEST(ReportDataTest, LayersHaveTheMediansOfTheirPasses) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json profile = ReportData(*answer)["profiles"][0];
  EXPECT_EQ(&answer->cells[profile["cell"]], answer->profiles[0].cell);
  EXPECT_EQ(profile["examples"], 64);
  EXPECT_EQ(profile["peak_flops_per_second"], 20e12);
  EXPECT_EQ(profile["peak_bytes_per_second"], 400e9);
  ASSERT_EQ(profile["passes"].size(), 8);
  const json& backward = profile["passes"][3];
  EXPECT_EQ(backward["layer"], "conv2");
  EXPECT_EQ(backward["direction"], "backward");
  EXPECT_DOUBLE_EQ(backward["seconds"], 2.1 * 0.7e-3);
  EXPECT_DOUBLE_EQ(backward["flopRate"], 1.2e9 / (2.1 * 0.7e-3));
  EXPECT_DOUBLE_EQ(backward["byteRate"], 18e6 / (2.1 * 0.7e-3));
  EXPECT_DOUBLE_EQ(backward["intensity"], 1.2e9 / 18e6);
}

TEST(ReportDataTest, LongLossCurvesAreThinnedToTheirEnd) {
  Answer answer;
  LossCurve curve;
  for (int64_t step = 1; step <= 10000; ++step) {
    curve.steps.push_back(step);
    curve.losses.push_back(1.0 / static_cast<double>(step));
  }
  answer.losses = {curve};
  const json data = ReportData(answer)["losses"][0];
  EXPECT_EQ(data["stride"], 5);
  ASSERT_EQ(data["steps"].size(), 2001);
  EXPECT_EQ(data["steps"][1], 6);
  EXPECT_EQ(data["steps"].back(), 10000);
  EXPECT_DOUBLE_EQ(data["losses"].back(), 1e-4);
}

TEST(ReportDataTest, ShortLossCurvesAreWhole) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json data = ReportData(*answer)["losses"][0];
  EXPECT_EQ(data["stride"], 1);
  EXPECT_EQ(data["steps"].size(), 60);
}

TEST(ReportDataTest, WhatIsNotFiniteIsWrittenAsNull) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  answer->losses[0].losses[3] = std::numeric_limits<double>::quiet_NaN();
  const json data = json::parse(ReportData(*answer).dump());
  EXPECT_TRUE(data["losses"][0]["losses"][3].is_null());
  EXPECT_TRUE(data["networks"][0]["curves"].back()["bus_factor"].is_null());
}

TEST(ReportDataTest, AnEmptyAnswerHasEmptyParts) {
  const json data = ReportData(Answer());
  for (const char* part :
       {"cells", "tables", "series", "ledgers", "waterfalls", "networks",
        "timelines", "profiles", "losses", "notes"}) {
    EXPECT_TRUE(data[part].is_array() && data[part].empty()) << part;
  }
}

TEST(NetworksDataTest, HoldsEveryCurveWithItsLine) {
  Answer answer;
  answer.networks = {MakeNetwork("gloo on box", "gloo")};
  const nlohmann::json network = ReportData(answer)["networks"][0];
  EXPECT_EQ(network["name"], "gloo on box");
  ASSERT_EQ(network["curves"].size(), 9);
  const nlohmann::json& curve = network["curves"][1];
  EXPECT_EQ(curve["collective"], "all_reduce");
  EXPECT_EQ(curve["ranks"], 4);
  EXPECT_DOUBLE_EQ(curve["bus_factor"], 1.5);
  EXPECT_DOUBLE_EQ(curve["alpha_seconds"], 4 * 90e-6);
  EXPECT_EQ(curve["points"][0]["bytes"], 8);
  const Table costs = TableNamed(answer, "cost-table");
  ASSERT_EQ(costs.rows.size(), 9u);
  EXPECT_EQ(FieldOf(costs, 1, "collective"), "all_reduce");
  EXPECT_EQ(NumberOf(costs, 1, "alpha_seconds"), 4 * 90e-6);
  EXPECT_EQ(NumberOf(costs, 1, "min_bytes"), 8);
  const nlohmann::json& all_gather = network["curves"][3];
  EXPECT_EQ(all_gather["collective"], "all_gather");
  EXPECT_EQ(nlohmann::json::parse(all_gather.dump())["bus_factor"], nullptr)
      << "no record knows it, and none is made up";
}

TEST(TablesTest, TellsCallsApartByHowTheyWereMade) {
  Answer answer;
  Configuration call;
  call.name = "all_reduce of 4096 B float32 sum on 4 ranks, nccl, nccl, RING";
  call.identity = {{"collective", "all_reduce"},
                   {"bytes", "4096"},
                   {"ranks", "4"},
                   {"layer", "nccl"},
                   {"timing", "events"},
                   {"algorithm", "RING"}};
  call.bytes = 4096;
  call.ranks = 4;
  call.samples = {{"call_seconds", {3e-5, 1e-5, 2e-5}}};
  call.bus_factor = 1.5;
  answer.calls = {call};
  const Table calls = TableNamed(answer, "call-table");
  EXPECT_EQ(FieldOf(calls, 0, "layer"), "nccl");
  EXPECT_EQ(FieldOf(calls, 0, "timing"), "events");
  EXPECT_EQ(FieldOf(calls, 0, "algorithm"), "RING");
  EXPECT_EQ(FieldOf(calls, 0, "bytes"), "4096");
  EXPECT_EQ(FieldOf(calls, 0, "ranks"), "4");
  EXPECT_EQ(FieldOf(calls, 0, "launches"), "3");
  EXPECT_EQ(NumberOf(calls, 0, "seconds"), 2e-5);
  EXPECT_DOUBLE_EQ(NumberOf(calls, 0, "algbw_bytes_per_second"), 4096 / 2e-5);
  EXPECT_DOUBLE_EQ(NumberOf(calls, 0, "busbw_bytes_per_second"),
                   1.5 * 4096 / 2e-5);
}

TEST(CellIndexTest, IsThePlaceOrNull) {
  const std::vector<Cell> cells = {MakeCell("single", 1, 64, 1000),
                                   MakeCell("ddp", 2, 64, 1800)};
  EXPECT_EQ(CellIndex(cells, &cells[1]), 1);
  EXPECT_TRUE(CellIndex(cells, nullptr).is_null());
  const Cell other;
  EXPECT_TRUE(CellIndex(cells, &other).is_null());
}

TEST(CellsDataTest, HoldsRatesMediansNamesAndMarks) {
  std::vector<Cell> cells = {MakeCell("1f1b", 2, 32, 1600)};
  cells[0].oversubscribed = true;
  cells[0].shared_device = "cuda:0";
  const nlohmann::json cell = CellsData(cells)[0];
  EXPECT_EQ(cell["label"], "pipeline 1f1b on 2 ranks, batch 32");
  // A geometric mean, so not exactly 1600.
  EXPECT_NEAR(cell["rate"].get<double>(), 1600, 0.2);
  EXPECT_EQ(cell["rate"], cells[0].ExamplesPerSecond());
  EXPECT_DOUBLE_EQ(cell["step_seconds"], 64.0 / 1600);
  EXPECT_EQ(cell["marks"].size(), 2);
}

TEST(TablesTest, MfuIsADashWhereItIsNotKnown) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  answer->cells[0].peak_tflops = 0;
  const Table table = TableNamed(*answer, "scaling-table");
  EXPECT_EQ(FieldOf(table, 0, "mfu"), "");
  EXPECT_NEAR(NumberOf(table, 5, "mfu"),
              3e9 * answer->cells[5].ExamplesPerSecond() / (8 * 20e12), 1e-12);
  EXPECT_NE(TableText(table).find("MFU"), std::string::npos);
  for (Cell& cell : answer->cells) cell.peak_tflops = 0;
  EXPECT_EQ(TableText(TableNamed(*answer, "scaling-table")).find("MFU"),
            std::string::npos);
}

TEST(OriginDataTest, AMachineHasTheDevicesOfAllCells) {
  std::vector<Cell> cells = {MakeCell("single", 1, 64, 1000),
                             MakeCell("ddp", 2, 64, 1800)};
  cells[0].devices = {"cuda:0"};
  cells[1].devices = {"cuda:0", "cuda:1"};
  const nlohmann::json machines = OriginData(cells)["machines"];
  ASSERT_EQ(machines.size(), 1);
  EXPECT_EQ(machines[0]["devices"], (nlohmann::json{"cuda:0", "cuda:1"}));
}

TEST(CellsDataTest, LabelsThatWouldBeEqualAreToldApart) {
  std::vector<Cell> cells = {MakeCell("1f1b", 2, 32, 1600),
                             MakeCell("1f1b", 2, 32, 1700),
                             MakeCell("gpipe", 2, 32, 1500)};
  cells[0].run.flags["microbatches"] = "4";
  cells[1].run.flags["microbatches"] = "8";
  cells[2].run.flags["microbatches"] = "8";
  const nlohmann::json data = CellsData(cells);
  EXPECT_EQ(data[0]["label"],
            "pipeline 1f1b on 2 ranks, batch 32, --microbatches=4");
  EXPECT_EQ(data[1]["label"],
            "pipeline 1f1b on 2 ranks, batch 32, --microbatches=8");
  EXPECT_EQ(data[2]["label"], "pipeline gpipe on 2 ranks, batch 32");
}

TEST(CellsDataTest, LabelsNameNoFilesAndEveryDifference) {
  std::vector<Cell> cells(3, MakeCell("1f1b", 2, 32, 1600));
  const std::vector<std::string> skip = {"false", "true", "false"};
  const std::vector<std::string> micro_batches = {"4", "4", "8"};
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].run.flags = {{"schedule", "1f1b"},
                          {"record", absl::StrCat("/out/", i, ".jsonl")},
                          {"checkpoint_dir", absl::StrCat("/out/", i)},
                          {"skip_communication", skip[i]},
                          {"microbatches", micro_batches[i]}};
  }
  const nlohmann::json data = CellsData(cells);
  const std::string name =
      "pipeline 1f1b on 2 ranks, batch 32, --microbatches=";
  EXPECT_EQ(data[0]["label"], name + "4");
  EXPECT_EQ(data[1]["label"],
            "pipeline 1f1b on 2 ranks, batch 32, without communication");
  EXPECT_EQ(data[0]["ablation"], false);
  EXPECT_EQ(data[1]["ablation"], true);
  EXPECT_EQ(data[2]["label"], name + "8");
}

TEST(IntervalDataTest, AnUnknownEndIsNull) {
  EXPECT_EQ(IntervalData({1, 2}), (nlohmann::json{1.0, 2.0}));
  EXPECT_TRUE(IntervalData({1, std::nan("")}).is_null());
  EXPECT_TRUE(IntervalData({-INFINITY, 2}).is_null());
}

TEST(OriginDataTest, FlagsAreThoseThatAllCellsShare) {
  std::vector<Cell> cells = {MakeCell("single", 1, 64, 1000),
                             MakeCell("ddp", 2, 64, 1800)};
  cells[0].run.flags = {{"lr", "0.1"}, {"batch_size", "64"}, {"own", "1"}};
  cells[1].run.flags = {{"lr", "0.1"}, {"batch_size", "32"}};
  const nlohmann::json origin = OriginData(cells);
  EXPECT_EQ(origin["flags"], (nlohmann::json{{"lr", "0.1"}}));
}

TEST(OriginDataTest, EachMachineAndVersionOnce) {
  std::vector<Cell> cells = {MakeCell("single", 1, 64, 1000),
                             MakeCell("ddp", 2, 64, 1800),
                             MakeCell("ddp", 4, 64, 3000)};
  for (Cell& cell : cells) cell.run.host.hostname = "a";
  cells[2].run.host.hostname = "b";
  cells[2].code_versions = {"source 1", "source 2"};
  cells[0].code_versions = {"source 1"};
  const nlohmann::json origin = OriginData(cells);
  ASSERT_EQ(origin["machines"].size(), 2);
  EXPECT_EQ(origin["machines"][0]["hostname"], "a");
  EXPECT_EQ(origin["versions"].size(), 1);
  EXPECT_EQ(origin["code"], (nlohmann::json{"source 1", "source 2"}));
}

TEST(TablesTest, ARefusedRowSaysWhy) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const Table rows = TableNamed(*answer, "scaling-table");
  ASSERT_EQ(rows.rows.size(), answer->rows.size());
  EXPECT_EQ(FieldOf(rows, rows.rows.size() - 1, "remarks"),
            "the batch per rank differs: 64 and 32");
  EXPECT_EQ(FieldOf(rows, rows.rows.size() - 1, "efficiency"), "");
  EXPECT_EQ(FieldOf(rows, 0, "scaling"), "base");
  EXPECT_EQ(FieldOf(rows, 0, "base"), "");
}

TEST(TablesTest, FiguresAreThoseOfTheAnswer) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  answer->rows[1].efficiency->warning = "forced";
  const Table rows = TableNamed(*answer, "scaling-table");
  const Efficiency& efficiency = *answer->rows[1].efficiency;
  EXPECT_EQ(NumberOf(rows, 1, "speedup"), efficiency.speedup);
  EXPECT_EQ(NumberOf(rows, 1, "efficiency_low"),
            efficiency.efficiency_interval.low);
  EXPECT_EQ(NumberOf(rows, 1, "efficiency_high"),
            efficiency.efficiency_interval.high);
  EXPECT_EQ(FieldOf(rows, 1, "remarks"), "forced");
  EXPECT_EQ(rows.rows[1][0].text, "ddp!");
}

TEST(SeriesDataTest, TheLawIsDrawnToTwiceTheLargestSize) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json series = ReportData(*answer)["series"];
  const json& law = series[0]["law"];
  EXPECT_EQ(law["serial_fraction"], 0.42);
  EXPECT_EQ(law["ranks"].front(), 1);
  EXPECT_DOUBLE_EQ(law["ranks"].back(), 4);
  EXPECT_DOUBLE_EQ(law["speedups"].back(), answer->series[0].law->Speedup(4));
  EXPECT_TRUE(series[3]["law"].is_null()) << "weak scaling";
}

TEST(SeriesDataTest, TheLawCountsInUnitsOfItsBase) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  Cell base = answer->cells[3];  // 2 ranks
  for (ScalingRow& row : answer->rows) {
    if (row.base != nullptr) row.base = &base;
  }
  const json series = ReportData(*answer)["series"][0];
  EXPECT_EQ(series["base_ranks"], 2);
  const json& law = series["law"];
  EXPECT_DOUBLE_EQ(law["ranks"].back(), 4);
  EXPECT_DOUBLE_EQ(law["speedups"].back(), answer->series[0].law->Speedup(2));
}

TEST(LedgersDataTest, PartsAddUpToTheStep) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json ledger = ReportData(*answer)["ledgers"][2];
  double sum = 0;
  for (const json& part : ledger["critical"]) sum += part.get<double>();
  EXPECT_DOUBLE_EQ(sum, answer->ledgers[2].ledger.critical.Total());
  EXPECT_EQ(ledger["ranks"].size(), 2);
}

TEST(WaterfallsDataTest, CausesHaveNamesAndRemedies) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const json loss = ReportData(*answer)["waterfalls"][0]["losses"][0];
  EXPECT_EQ(loss["cause"], LossName(LossCause::kSmallerBatch));
  EXPECT_EQ(loss["remedy"], Remedy(LossCause::kSmallerBatch));
  EXPECT_LT(loss["interval"][0], loss["seconds"]);
  EXPECT_GT(loss["interval"][1], loss["seconds"]);
}

TEST(TablesTest, AblationsHaveTheirDisagreement) {
  const std::unique_ptr<Answer> answer = FullAnswer("");
  const Table table = TableNamed(*answer, "ablation-table");
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(FieldOf(table, 0, "configuration"), "ddp on 2 ranks, batch 64");
  EXPECT_EQ(NumberOf(table, 0, "disagreement"), -0.042);
}

}  // namespace

}  // namespace rankwise
