#include "analysis/text/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rankwise {
namespace {

Table Times() {
  Table table = {"times-table", "Times", "Times of layouts:", "ms: medians.\n"};
  for (const auto& [name, seconds] :
       {std::pair("ddp", 0.0123456), std::pair("=fsdp, \"zero\"", 0.2)}) {
    table.AddRow();
    table.Add("layout", "layout", Word(name), kLeft);
    table.Add("ms", "seconds", Milliseconds(seconds));
    table.Add("95 %", "seconds_low,seconds_high",
              Ends({seconds / 2, 2 * seconds},
                   [](double x) { return FixedText(1e3 * x, 1); }));
    table.Add("hosts", "hosts", Whole(1), 0, "1");
    table.Add("exact", "exact", Digits(seconds), kInFile);
  }
  return table;
}

TEST(Table, ATerminalShowsItsColumnsWithCaptionAndNotes) {
  EXPECT_EQ(TerminalText(Times()),
            "Times of layouts:\n\n"
            "layout             ms            95 %\n"
            "-------------------------------------\n"
            "ddp             12.35     [6.2, 24.7]\n"
            "=fsdp, \"zero\"  200.00  [100.0, 400.0]\n"
            "ms: medians.\n\n");
}

TEST(Table, AFileHasEveryDigitAndColumn) {
  EXPECT_EQ(TableCsv(Times()),
            "layout,seconds,seconds_low,seconds_high,hosts,exact\n"
            "ddp,0.0123456,0.0061728,0.0246912,1,0.0123456\n"
            "\"'=fsdp, \"\"zero\"\"\",0.20000000000000001,"
            "0.10000000000000001,0.40000000000000002,1,"
            "0.20000000000000001\n");
}

TEST(Table, AColumnThatSaysNothingIsInTheFileAlone) {
  Table table = Times();
  EXPECT_FALSE(table.Shows(3, kNotOnTerminal));
  EXPECT_FALSE(table.Shows(3, kNotOnPage));
  table.rows[1][3] = Whole(2);
  EXPECT_TRUE(table.Shows(3, kNotOnPage));
  EXPECT_FALSE(table.Shows(4, kNotOnPage));
}

TEST(Table, OneThatIsNotForATerminalIsNotThere) {
  Table table = Times();
  table.on_terminal = false;
  EXPECT_EQ(TerminalText(table), "");
  EXPECT_EQ(TerminalText({"empty-table"}), "");
}

TEST(Table, ARowThatIsHiddenFromTerminalsIsInTheFile) {
  Table table = Times();
  table.HideLastRow();
  EXPECT_EQ(TableText(table),
            "layout     ms         95 %\n"
            "--------------------------\n"
            "ddp     12.35  [6.2, 24.7]\n");
  EXPECT_EQ(TableCsv(table), TableCsv(Times()));
  table.rows[1][3] = Whole(2);
  EXPECT_FALSE(table.Shows(3, kNotOnTerminal));
  EXPECT_TRUE(table.Shows(3, kNotOnPage));
  table.hidden_rows.insert(0);
  EXPECT_EQ(TerminalText(table), "");
}

TEST(Figures, DigitsAreThreeWithoutAnExponent) {
  EXPECT_EQ(DigitsText(0.0123456), "0.0123");
  EXPECT_EQ(DigitsText(12.3456), "12.3");
  EXPECT_EQ(DigitsText(123456), "123456");
  EXPECT_EQ(DigitsText(-1.5), "-1.50");
  EXPECT_EQ(DigitsText(0), "0");
}

TEST(Figures, WhatIsNotKnownIsADashAndAnEmptyField) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  for (const Figure& figure :
       {Fixed(unknown, 2), Digits(unknown), Share(unknown),
        SignedShare(unknown), Milliseconds(unknown), Megabytes(0)}) {
    EXPECT_EQ(figure.text, "-");
    EXPECT_EQ(figure.fields, std::vector<std::string>{""});
  }
  const Figure ends = Ends({unknown, unknown}, DigitsText);
  EXPECT_EQ(ends.text, "-");
  EXPECT_EQ(ends.fields, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(IntervalClause({unknown, unknown}, DigitsText), "");
  EXPECT_EQ(IntervalClause({1, 2}, DigitsText), ", 95 % interval [1.00, 2.00]");
}

}  // namespace
}  // namespace rankwise
