#include "analysis/rate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rankwise {
namespace {

Cell CellOf(const std::string& example, int64_t tokens_per_example = 0) {
  Cell cell;
  cell.run.example = example;
  cell.run.tokens_per_example = tokens_per_example;
  return cell;
}

TEST(RateColumn, CountsWhatAllItsCellsCount) {
  const std::vector<Cell> tokens = {CellOf("sequence", 128),
                                    CellOf("sequence", 16)};
  const RateColumn column(tokens);
  EXPECT_EQ(column.name(), "tokens/s");
  EXPECT_EQ(column.Of(tokens[0], 10), 1280);
  EXPECT_EQ(column.Of(tokens[1], 10), 160);
  EXPECT_EQ(RateColumn({CellOf("image"), CellOf("image")}).name(), "images/s");
}

TEST(RateColumn, CountsExamplesWhereUnitsDifferOrAreUnknown) {
  const std::vector<Cell> mixed = {CellOf("sequence", 128), CellOf("image"),
                                   CellOf("sequence", 128)};
  const RateColumn column(mixed);
  EXPECT_EQ(column.name(), "examples/s");
  for (const Cell& cell : mixed) EXPECT_EQ(column.Of(cell, 10), 10);
  EXPECT_EQ(RateColumn({CellOf("")}).name(), "examples/s");
  EXPECT_EQ(RateColumn({}).name(), "examples/s");
}

}  // namespace
}  // namespace rankwise
