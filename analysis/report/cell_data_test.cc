#include "analysis/report/cell_data.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/cell.h"
#include "analysis/report/parts_for_test.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

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
  // The geometric mean of repetitions around 1600.
  EXPECT_NEAR(cell["examples_per_second"].get<double>(), 1600, 0.2);
  EXPECT_EQ(cell["examples_per_second"], cells[0].ExamplesPerSecond());
  EXPECT_EQ(cell["rate"], cell["examples_per_second"]);
  EXPECT_DOUBLE_EQ(cell["step_seconds"], 64.0 / 1600);
  EXPECT_EQ(cell["marks"].size(), 2);
  EXPECT_DOUBLE_EQ(cell["pipeline"]["wall_bubble"], 0.27);
}

TEST(CellsDataTest, MfuIsNullWhereItIsNotKnown) {
  std::vector<Cell> cells(2, MakeCell("ddp", 2, 32, 1600));
  cells[1].run.forward_flops_per_example = 1e11;
  cells[1].peak_tflops = 1000;
  // As the page's file has it: JSON knows no NaN.
  const nlohmann::json data = nlohmann::json::parse(CellsData(cells).dump());
  EXPECT_TRUE(data[0]["mfu"].is_null());
  EXPECT_NEAR(data[1]["mfu"].get<double>(),
              3e11 * cells[1].ExamplesPerSecond() / 2e15, 1e-12);
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

TEST(CellsDataTest, NoPipelineIsNull) {
  EXPECT_TRUE(
      CellsData({MakeCell("ddp", 2, 32, 1600)})[0]["pipeline"].is_null());
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
            "pipeline 1f1b on 2 ranks, batch 32, microbatches=4");
  EXPECT_EQ(data[1]["label"],
            "pipeline 1f1b on 2 ranks, batch 32, microbatches=8");
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
  const std::string name = "pipeline 1f1b on 2 ranks, batch 32, microbatches=";
  EXPECT_EQ(data[0]["label"], name + "4");
  EXPECT_EQ(data[1]["label"], name + "4, without communication");
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

}  // namespace
}  // namespace rankwise
