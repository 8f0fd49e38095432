#include "analysis/text_table.h"

#include <gtest/gtest.h>

namespace rankwise {
namespace {

TEST(TextTable, AlignsTextLeftAndNumbersRight) {
  TextTable table({"name", "n", "share"}, /*left_columns=*/1);
  table.AddRow({"a", "1", "5.0 %"});
  table.AddRow({"longer", "1234", "-"});
  EXPECT_EQ(table.ToString(),
            "name       n  share\n"
            "-------------------\n"
            "a          1  5.0 %\n"
            "longer  1234      -\n");
}

TEST(TextTable, LinesHaveNoTrailingSpaces) {
  TextTable table({"name", "note"}, /*left_columns=*/2);
  table.AddRow({"a", "a long note"});
  table.AddRow({"b", ""});
  EXPECT_EQ(table.ToString(), "name  note\n----------\na     a long note\nb\n");
}

}  // namespace
}  // namespace rankwise
