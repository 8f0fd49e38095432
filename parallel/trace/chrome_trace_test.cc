#include "parallel/trace/chrome_trace.h"

#include <fstream>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Json = nlohmann::ordered_json;

Json EventsOf(const TraceProcess& process, double origin_seconds = 0) {
  return Json::parse("[" + RenderProcess(process, origin_seconds) + "]");
}

// Row names by number.
std::map<int, std::string> RowsOf(const Json& events) {
  std::map<int, std::string> rows;
  for (const Json& event : events) {
    if (event["name"] == "thread_name")
      rows[event["tid"]] = event["args"]["name"];
  }
  return rows;
}

// The row of each span, by the span's name.
std::map<std::string, std::string> RowOfSpan(const Json& events) {
  const std::map<int, std::string> rows = RowsOf(events);
  std::map<std::string, std::string> row_of_span;
  for (const Json& event : events) {
    if (event["ph"] == "X") row_of_span[event["name"]] = rows.at(event["tid"]);
  }
  return row_of_span;
}

TraceSpan SpanOf(const std::string& lane, const std::string& name, double start,
                 double end, bool nests) {
  TraceSpan span;
  span.lane = lane;
  span.name = name;
  span.start_seconds = start;
  span.end_seconds = end;
  span.nests = nests;
  return span;
}

TEST(ChromeTraceTest, SpansAreToldInMicrosecondsSinceTheOrigin) {
  TraceSpan span = SpanOf("compute", "forward", 100.5, 101.75, true);
  span.args = {{"stage", 3}};
  const Json event =
      EventsOf({.number = 7, .name = "rank 7", .spans = {span}}, 100).back();
  EXPECT_EQ(event["ts"], 500'000);
  EXPECT_EQ(event["dur"], 1'250'000);
  EXPECT_EQ(event["pid"], 7);
  EXPECT_EQ(event["args"]["stage"], 3);
}

TEST(ChromeTraceTest, LanesAreThereInOrderAlsoWhenEmpty) {
  const Json events =
      EventsOf({.name = "rank 0",
                .lanes = {"compute", "communication", "data"},
                .spans = {SpanOf("operators", "add", 0, 1, true)},
                .args = {{"clock_error_us", 3}}});
  EXPECT_THAT(
      RowsOf(events),
      ElementsAre(std::pair(0, "compute"), std::pair(1, "communication"),
                  std::pair(2, "data"), std::pair(3, "operators")));
  EXPECT_EQ(events[0]["args"]["name"], "rank 0");
  EXPECT_EQ(events[0]["args"]["clock_error_us"], 3);
}

TEST(ChromeTraceTest, NestedSpansShareARowAndOverlappingOnesDoNot) {
  const auto rows =
      RowOfSpan(EventsOf({.name = "rank 0",
                          .spans = {SpanOf("c", "forward", 0, 4, true),
                                    SpanOf("c", "step", 0, 10, true),
                                    SpanOf("c", "backward", 4, 10, true),
                                    SpanOf("c", "crossing", 9, 11, true),
                                    SpanOf("n", "first", 0, 5, false),
                                    SpanOf("n", "inside", 1, 2, false),
                                    SpanOf("n", "after", 5, 6, false)}}));
  EXPECT_EQ(rows.at("step"), "c");
  EXPECT_EQ(rows.at("forward"), "c");
  EXPECT_EQ(rows.at("backward"), "c");
  EXPECT_EQ(rows.at("crossing"), "c 2");
  EXPECT_EQ(rows.at("first"), "n");
  EXPECT_EQ(rows.at("inside"), "n 2");
  EXPECT_EQ(rows.at("after"), "n");
}

TEST(ChromeTraceTest, TextsOfSeveralProcessesMakeOneFile) {
  const std::string path = testing::TempDir() + "merged.json";
  const TraceProcess first{.number = 0, .name = "rank 0"};
  const TraceProcess second{.number = 1, .name = "rank \"1\" \xff"};
  const absl::Status written = WriteTraceFile(
      path, {RenderProcess(first, 0), "", RenderProcess(second, 0)});
  ASSERT_TRUE(written.ok()) << written;
  std::ifstream file(path);
  const Json trace = Json::parse(file);
  EXPECT_EQ(trace["traceEvents"].size(), 4u);
}

TEST(ChromeTraceTest, TheErrorNamesTheFile) {
  EXPECT_THAT(WriteTraceFile("/nowhere/trace.json", {}).message(),
              AllOf(HasSubstr("writing /nowhere/trace.json"),
                    HasSubstr("its folder must exist")));
}

}  // namespace
}  // namespace rankwise
