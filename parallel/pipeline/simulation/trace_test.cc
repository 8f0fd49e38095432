#include "parallel/pipeline/simulation/trace.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

using Json = nlohmann::json;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Json Events(const std::vector<NamedTimeline>& timelines) {
  const std::string path = testing::TempDir() + "trace.json";
  EXPECT_TRUE(WriteTrace(path, timelines).ok());
  return Json::parse(ReadFile(path))["traceEvents"];
}

// Returns the events of a phase: "X" for spans, "M" for names.
std::vector<Json> OfPhase(const Json& events, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : events) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

Span SpanOf(int stage, int micro_batch, ActionKind kind, double start,
            double end) {
  return {{stage, micro_batch, kind}, start, end};
}

TEST(WriteTraceTest, ASpanIsACompleteEventInMicroseconds) {
  const Timeline timeline{{{SpanOf(1, 3, ActionKind::kForward, 100, 100.5),
                            SpanOf(1, 3, ActionKind::kWeightGrad, 101, 103)}}};
  const std::vector<Json> spans =
      OfPhase(Events({{"measured", &timeline}}), "X");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["name"], "F3 (stage 1)");
  EXPECT_EQ(spans[0]["cat"], "forward");
  EXPECT_EQ(spans[0]["ts"], 0);
  EXPECT_EQ(spans[0]["dur"], 500'000);
  EXPECT_EQ(spans[0]["args"], Json({{"stage", 1}, {"micro_batch", 3}}));
  EXPECT_EQ(spans[1]["name"], "W3 (stage 1)");
  EXPECT_EQ(spans[1]["ts"], 1'000'000);
  EXPECT_EQ(spans[1]["tid"], spans[0]["tid"]);
  EXPECT_NE(spans[1]["cname"], spans[0]["cname"]);
}

TEST(WriteTraceTest, ProcessesAndRowsAreNamed) {
  const Timeline simulated{{{SpanOf(0, 0, ActionKind::kForward, 0, 1)},
                            {SpanOf(1, 0, ActionKind::kForward, 1, 2)}}};
  const Timeline measured{{{SpanOf(0, 0, ActionKind::kForward, 50, 51)}}};
  const Json events =
      Events({{"simulated", &simulated}, {"measured", &measured}});
  std::set<std::pair<int, std::string>> names;
  for (const Json& event : OfPhase(events, "M")) {
    if (event["args"].contains("name"))
      names.emplace(event["pid"].get<int>(),
                    event["args"]["name"].get<std::string>());
  }
  using Name = std::pair<int, std::string>;
  EXPECT_THAT(names,
              UnorderedElementsAre(Name{0, "simulated"}, Name{0, "rank 0"},
                                   Name{0, "rank 1"}, Name{1, "measured"},
                                   Name{1, "rank 0"}));
  // Both start at 0.
  EXPECT_EQ(OfPhase(events, "X")[2]["pid"], 1);
  EXPECT_EQ(OfPhase(events, "X")[2]["ts"], 0);
}

TEST(WriteTraceTest, CommunicationHasRowsOfItsOwnAndNoneOverlaps) {
  const Timeline timeline{{{
      SpanOf(0, 0, ActionKind::kRecvForward, 0, 4),
      SpanOf(0, 1, ActionKind::kRecvForward, 0, 5),
      SpanOf(0, 0, ActionKind::kForward, 0, 10),
      SpanOf(0, 0, ActionKind::kSendForward, 4, 6),
  }}};
  std::vector<int> rows;
  for (const Json& span : OfPhase(Events({{"measured", &timeline}}), "X")) {
    rows.push_back(span["tid"]);
  }
  // In order of start, the longest first.
  EXPECT_THAT(rows, ElementsAre(0, 1, 2, 2));
}

TEST(WriteTraceTest, AnEmptyTimelineIsAnEmptyTrace) {
  const Timeline timeline;
  EXPECT_TRUE(OfPhase(Events({{"simulated", &timeline}}), "X").empty());
}

TEST(WriteTraceTest, TheErrorNamesTheFile) {
  EXPECT_THAT(WriteTrace("/nowhere/trace.json", {}).message(),
              AllOf(HasSubstr("writing /nowhere/trace.json"),
                    HasSubstr("its folder must exist")));
}

Timeline Simulated(const std::string& name, const ScheduleShape& shape) {
  return Simulate(*MakeSchedule(name, shape),
                  {.stages = {StageCosts{}}, .link = {}})
      .value();
}

TEST(DrawTimelineTest, NamesActionsWhereThereIsRoom) {
  EXPECT_EQ(DrawTimeline(Simulated("1f1b", {2, 2}), 100),
            "rank 0 |F0 F1 ......B0=== ...B1=== |\n"
            "rank 1 |...F0 B0=== F1 B1=== ......|\n"
            "F forward, B backward, of micro-batch 3: F3; . idle; a column is "
            "0.333 s\n");
}

TEST(DrawTimelineTest, NamesTheStageWhereARankHasSeveral) {
  EXPECT_EQ(DrawTimeline(Simulated("zbv", {1, 1}), 100),
            "rank 0 |0F0 1F0 1I0 1W0 0I0 0W0 |\n"
            "F forward, I input gradient, W weight gradient, of micro-batch 3 "
            "in stage 1: 1F3; . idle; a column is 0.25 s\n");
}

TEST(DrawTimelineTest, MarksWhatOverlaps) {
  const Schedule pair =
      *ParseScheduleCsv("pair.csv", "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
  const std::string legend =
      "F forward, B backward, of micro-batch 3: F3; + may overlap with the "
      "preceding action; . idle; a column is 0.333 s\n";
  EXPECT_EQ(DrawTimeline(*Simulate(pair, {.stages = {StageCosts{}}}), 100),
            "rank 0 |F0 F1+B0=== B1=== |\n" + legend);
  // Both start at 1 s; the rest of B0 is drawn after F1.
  EXPECT_EQ(DrawTimeline(
                *Simulate(pair, {.stages = {StageCosts{}}, .overlap = 1}), 100),
            "rank 0 |F0 F1+B0 B1=== |\n" + legend);
}

TEST(DrawTimelineTest, WhatOverlapsMayBeTheFirstThatTakesTime) {
  const Schedule pair =
      *ParseScheduleCsv("pair.csv", "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
  const StageCosts no_forward = {.forward_seconds = 0};
  const std::string text =
      DrawTimeline(*Simulate(pair, {.stages = {no_forward}}), 100);
  EXPECT_EQ(text.substr(0, text.find('\n')), "rank 0 |B0 B1 |");
}

TEST(DrawTimelineTest, IsNarrowWhereThereIsLess) {
  EXPECT_EQ(DrawTimeline(Simulated("1f1b", {2, 2}), 20),
            "rank 0 |01..aa.bb|\n"
            "rank 1 |.0aa1bb..|\n"
            "0-9 forward, a-j backward, of micro-batch 0-9, 10-19, ...; . "
            "idle; a column is 1 s\n");
  EXPECT_EQ(
      DrawTimeline(Simulated("zero_bubble_h1", {1, 12}), 50).substr(0, 45),
      "rank 0 |0A=1B=2C=3D=4E=5F=6G=7H=8I=9J=0A=1B=|");
}

TEST(DrawTimelineTest, FitsEveryWidth) {
  const Timeline timeline = Simulated("interleaved_1f1b", {12, 24, 3});
  for (int width = 0; width < 400; ++width) {
    const std::string text = DrawTimeline(timeline, width);
    if (text.empty()) continue;
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    for (int rank = 0; rank < 12; ++rank) {
      EXPECT_LE(lines[rank].size(), static_cast<size_t>(width));
      EXPECT_EQ(lines[rank].size(), lines[0].size());
    }
  }
}

TEST(DrawTimelineTest, IsEmptyWhereItIsTooLarge) {
  EXPECT_NE(DrawTimeline(Simulated("gpipe", {2, 10}), 29), "");
  EXPECT_EQ(DrawTimeline(Simulated("gpipe", {2, 10}), 28), "");
  EXPECT_EQ(DrawTimeline(Simulated("gpipe", {65, 2}), 300), "");
  EXPECT_EQ(DrawTimeline(Timeline{}, 100), "");
  EXPECT_EQ(DrawTimeline(Timeline{{{}, {}}}, 100), "");
}

TEST(DrawTimelineTest, PassesOverCommunicationAndStartsAtTheFirstComputation) {
  const Timeline timeline{{{{{0, 0, ActionKind::kRecvForward}, 50, 99},
                            {{0, 0, ActionKind::kForward}, 100, 101}}}};
  EXPECT_EQ(DrawTimeline(timeline, 100).substr(0, 13), "rank 0 |F0 |\n");
}

}  // namespace
}  // namespace rankwise
