#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "records/record.h"
#include "records/record_json.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CollectiveRecord ExampleCollective() {
  CollectiveRecord record;
  record.rank = 2;
  record.collective = "all_reduce";
  record.ranks = {0, 2};
  record.bytes = 4096;
  record.count = 1024;
  record.dtype = "float32";
  record.op = "sum";
  record.in_place = true;
  record.in_flight = 4;
  record.cache = "cold";
  record.sync = "window";
  record.launch = 1;
  record.calls_per_iteration = 2;
  record.wrong = 0;
  record.end = "precise";
  record.seconds = {0.5, 0.25, 0.125};
  record.start_seconds = {0, 1, 2.5};
  record.late = {1};
  record.clock_error_seconds = 0.0625;
  record.timing = "events";
  record.graph = true;
  record.algorithm = "Ring";
  record.protocol = "LL";
  record.bus_factor = 1.5;
  record.group_size = 2;
  record.concurrent_groups = 4;
  return record;
}

OverlapRecord ExampleOverlap() {
  OverlapRecord record;
  record.rank = 1;
  record.collective = "all_reduce";
  record.bytes = 4096;
  record.dtype = "float32";
  record.op = "sum";
  record.in_place = true;
  record.gemm_size = 256;
  record.compute_seconds = {1, 2};
  record.comm_seconds = {0.5, 0.25};
  record.both_seconds = {1.5, 2.25};
  record.both_compute_seconds = {1.5, 2};
  record.both_comm_seconds = {0.75, 0.5};
  return record;
}

TrafficRecord ExampleTraffic() {
  RecordedTransfer bucket{"all_reduce", 4096, 1024, "float32",
                          -1,           {},   0.25, 0.5};
  RecordedTransfer send{"send", 64,     16,  "float32",
                        3,      {1, 3}, 0.5, std::nan("")};
  bucket.wait_start_seconds = 0.375;
  send.group = "pp";
  TrafficRecord record;
  record.rank = 1;
  record.step = 7;
  record.events = {bucket, send};
  record.step_seconds = 2;
  record.exposed_comm_seconds = 0.125;
  return record;
}

EnvironmentRecord ExampleEnvironment() {
  EnvironmentRecord record;
  record.topology = "1 package, 2 cores";
  record.cpus = {0, 2};
  record.variables = {{"NCCL_ALGO", "Ring"}, {"OMP_NUM_THREADS", "1"}};
  return record;
}

template <typename T>
T ParseAs(const std::string& line) {
  absl::StatusOr<Record> record = ParseRecord(line);
  EXPECT_TRUE(record.ok()) << record.status();
  return std::get<T>(*record);
}

TEST(CommRecordJson, CollectiveIsTheTextOfTheGrammar) {
  EXPECT_EQ(ToJsonLine(ExampleCollective()),
            R"({"kind":"collective","rank":2,"collective":"all_reduce",)"
            R"("layer":"c10d","ranks":[0,2],"bytes":4096,"count":1024,)"
            R"("dtype":"float32","op":"sum","root":-1,"in_place":true,)"
            R"("in_flight":4,"cache":"cold","sync":"window","launch":1,)"
            R"("trips":2,"wrong":0,"end":"precise",)"
            R"("seconds":[0.5,0.25,0.125],"start_seconds":[0,1,2.5],)"
            R"("late":[1],"clock_error_seconds":0.0625,"timing":"events",)"
            R"("graph":true,"registered":false,"algorithm":"Ring",)"
            R"("protocol":"LL","bus_factor":1.5,"group_size":2,)"
            R"("concurrent_groups":4})");
}

TEST(CommRecordJson, ACollectiveFromBefore14WasTimedByTheHost) {
  const std::string old = absl::StrReplaceAll(
      ToJsonLine(ExampleCollective()),
      {{R"(,"timing":"events","graph":true,"registered":false,)"
        R"("algorithm":"Ring","protocol":"LL","bus_factor":1.5,"group_size":2,)"
        R"("concurrent_groups":4)",
        ""}});
  EXPECT_EQ(old.find("timing"), std::string::npos);
  const auto row = ParseAs<CollectiveRecord>(old);
  EXPECT_EQ(row.timing, "host");
  EXPECT_FALSE(row.graph);
  EXPECT_FALSE(row.registered);
  EXPECT_EQ(row.algorithm, "");
  EXPECT_EQ(row.clock_error_seconds, 0.0625);
}

TEST(CommRecordJson, ACollectiveFromBefore15HasNoBusFactor) {
  const std::string old =
      absl::StrReplaceAll(ToJsonLine(ExampleCollective()),
                          {{R"(,"bus_factor":1.5,"group_size":2)", ""},
                           {R"(,"concurrent_groups":4)", ""}});
  EXPECT_EQ(old.find("bus_factor"), std::string::npos);
  const auto row = ParseAs<CollectiveRecord>(old);
  EXPECT_TRUE(std::isnan(row.bus_factor));
  EXPECT_EQ(row.group_size, 0);
  EXPECT_EQ(row.concurrent_groups, 0);
  EXPECT_EQ(row.protocol, "LL");
}

TEST(CommRecordJson, OverlapIsTheTextOfTheGrammar) {
  EXPECT_EQ(ToJsonLine(ExampleOverlap()),
            R"({"kind":"overlap","rank":1,"collective":"all_reduce",)"
            R"("bytes":4096,"dtype":"float32","op":"sum","in_place":true,)"
            R"("gemm_size":256,)"
            R"("compute_seconds":[1,2],"comm_seconds":[0.5,0.25],)"
            R"("both_seconds":[1.5,2.25],"both_compute_seconds":[1.5,2],)"
            R"("both_comm_seconds":[0.75,0.5]})");
}

TEST(CommRecordJson, TrafficIsTheTextOfTheGrammar) {
  EXPECT_EQ(ToJsonLine(ExampleTraffic()),
            R"({"kind":"traffic","rank":1,"step":7,"events":[)"
            R"({"op":"all_reduce","bytes":4096,"count":1024,)"
            R"("dtype":"float32","peer":-1,"ranks":[],"start_seconds":0.25,)"
            R"("end_seconds":0.5,"wait_start_seconds":0.375,"group":""},)"
            R"({"op":"send","bytes":64,"count":16,"dtype":"float32",)"
            R"("peer":3,"ranks":[1,3],"start_seconds":0.5,)"
            R"("end_seconds":"NaN","wait_start_seconds":"NaN",)"
            R"("group":"pp"}],)"
            R"("step_seconds":2,)"
            R"("exposed_comm_seconds":0.125})");
}

TEST(CommRecordJson, EnvironmentIsTheTextOfTheGrammar) {
  EXPECT_EQ(ToJsonLine(ExampleEnvironment()),
            R"({"kind":"environment","rank":0,)"
            R"("topology":"1 package, 2 cores","cpus":[0,2],)"
            R"("variables":{"NCCL_ALGO":"Ring","OMP_NUM_THREADS":"1"}})");
}

TEST(CommRecordJson, EveryKindComesBackAsItWent) {
  const std::vector<Record> records = {ExampleCollective(), ExampleOverlap(),
                                       ExampleTraffic(), ExampleEnvironment()};
  for (const Record& record : records) {
    const std::string line = ToJsonLine(record);
    absl::StatusOr<Record> back = ParseRecord(line);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->index(), record.index());
    EXPECT_EQ(ToJsonLine(*back), line);
  }
}

TEST(CommRecordJson, ListsAndEventsKeepTheirValues) {
  const auto row = ParseAs<CollectiveRecord>(ToJsonLine(ExampleCollective()));
  EXPECT_THAT(row.ranks, ElementsAre(0, 2));
  EXPECT_THAT(row.seconds, ElementsAre(0.5, 0.25, 0.125));
  EXPECT_THAT(row.late, ElementsAre(1));
  EXPECT_TRUE(row.in_place);
  const auto traffic = ParseAs<TrafficRecord>(ToJsonLine(ExampleTraffic()));
  ASSERT_EQ(traffic.events.size(), 2u);
  EXPECT_EQ(traffic.events[1].op, "send");
  EXPECT_TRUE(std::isnan(traffic.events[1].end_seconds));
}

TEST(CommRecordJson, SamplesReadBackBitEqual) {
  OverlapRecord overlap = ExampleOverlap();
  overlap.comm_seconds = {1.0 / 3, 5e-324};
  const auto back = ParseAs<OverlapRecord>(ToJsonLine(overlap));
  EXPECT_EQ(back.comm_seconds, overlap.comm_seconds);
}

TEST(CommRecordJson, ImpossibleDurationsOfAListAreRefused) {
  OverlapRecord overlap = ExampleOverlap();
  overlap.comm_seconds = {-1e-9, 0.5};
  EXPECT_THAT(ParseAs<OverlapRecord>(ToJsonLine(overlap)).comm_seconds,
              ElementsAre(0, 0.5));
  overlap.comm_seconds = {0.5, std::nan("")};
  EXPECT_THAT(std::string(ParseRecord(ToJsonLine(overlap)).status().message()),
              HasSubstr("not [0.5,\"NaN\"]; the clock of that rank was wrong"));
}

// A line that should be rejected: a valid one with a part replaced.
struct Broken {
  Record good;
  std::string from, to, message;
};

TEST(CommRecordJson, BrokenRecordsSayWhatIsWrong) {
  const std::vector<Broken> cases = {
      {ExampleCollective(), R"("launch":1,)", "",
       R"(in the collective record: the field "launch" is missing)"},
      {ExampleCollective(), R"("timing":"events")", R"("timing":"sun")",
       R"("timing" should be one of host, events, not "sun")"},
      {ExampleCollective(), R"("graph":true,)", "",
       R"(in the collective record: the field "graph" is missing)"},
      {ExampleCollective(), R"("in_place":true)", R"("in_place":1)",
       R"("in_place" should be true or false, not 1)"},
      {ExampleCollective(), "cold", "lukewarm",
       R"("cache" should be one of hot, cold, not "lukewarm")"},
      {ExampleCollective(), R"("sync":"window")", R"("sync":3)",
       R"("sync" should be one of barrier, window, none, not 3)"},
      {ExampleCollective(), "precise", "done",
       "one of counted, precise, out_of_time, max_iterations, interrupted"},
      {ExampleCollective(), R"("root":-1)", R"("root":-2)",
       R"("root" should be an integer of at least -1, not -2)"},
      {ExampleCollective(), R"("in_flight":4)", R"("in_flight":0)",
       "an integer of at least 1, not 0"},
      {ExampleCollective(), R"("trips":2)", R"("trips":0)",
       R"("trips" should be above 0)"},
      {ExampleCollective(), R"("trips":2)", R"("trips":"NaN")",
       R"("trips" should be above 0)"},
      {ExampleCollective(), R"("ranks":[0,2])", R"("ranks":[0,-2])",
       R"("ranks" should be a list of integers of at least 0, not [0,-2])"},
      {ExampleCollective(), R"("ranks":[0,2])", R"("ranks":0)",
       R"("ranks" should be a list of integers)"},
      {ExampleCollective(), R"("ranks":[0,2])", R"("ranks":[0,1])",
       R"("rank" is none of "ranks")"},
      {ExampleCollective(), R"("group_size":2)", R"("group_size":3)",
       R"("group_size" is not the number of "ranks")"},
      {ExampleCollective(), R"(,"group_size":2)", "",
       R"(in the collective record: the field "group_size" is missing)"},
      {ExampleCollective(), R"("bus_factor":1.5)", R"("bus_factor":-1)",
       R"("bus_factor" should be a number of 0 or more, or "NaN")"},
      {ExampleCollective(), "[0.5,0.25,0.125]", "[0.5,-1,0.125]",
       R"("seconds" should be a list of numbers of seconds, 0 or more)"},
      {ExampleCollective(), "[0.5,0.25,0.125]", "[0.5,\"NaN\",0.125]",
       R"("seconds" should be a list of numbers of seconds)"},
      {ExampleCollective(), "[0,1,2.5]", "[0,1]",
       R"("seconds" and "start_seconds" differ in length)"},
      {ExampleCollective(), R"("late":[1])", R"("late":[3])",
       R"("late" names an iteration that "seconds" does not have)"},
      {ExampleOverlap(), "[1.5,2.25]", "[1.5]",
       "in the overlap record: the lists of seconds differ in length"},
      {ExampleOverlap(), R"("gemm_size":256)", R"("gemm_size":0)",
       "an integer of at least 1, not 0"},
      {ExampleTraffic(), R"("op":"send",)", "",
       R"(in the traffic.events[1] record: the field "op" is missing)"},
      {ExampleTraffic(), R"("end_seconds":0.5)", R"("end_seconds":0.125)",
       R"(traffic.events[0] record: "end_seconds" is before "start_seconds")"},
      {ExampleTraffic(), R"("wait_start_seconds":0.375)",
       R"("wait_start_seconds":0.125)",
       R"("wait_start_seconds" is before "start_seconds")"},
      {ExampleTraffic(), R"("end_seconds":0.5)", R"("end_seconds":"soon")",
       R"("end_seconds" should be a number of 0 or more, or "NaN")"},
      {ExampleTraffic(), R"("events":[)", R"("events":[5,)",
       R"("events" should be a list of objects)"},
      {ExampleTraffic(), R"("events":[)", R"("events":{},"e":[)",
       R"("events" should be a list of objects, not {})"},
      {ExampleEnvironment(), R"("cpus":[0,2])", R"("cpus":["0"])",
       R"("cpus" should be a list of integers of at least 0)"},
      {ExampleEnvironment(), R"("Ring")", "7",
       R"("variables.NCCL_ALGO" should be a string, not 7)"},
  };
  for (const Broken& c : cases) {
    const std::string good = ToJsonLine(c.good);
    const std::string line = absl::StrReplaceAll(good, {{c.from, c.to}});
    ASSERT_NE(line, good) << c.from;
    absl::StatusOr<Record> record = ParseRecord(line);
    EXPECT_EQ(record.status().code(), absl::StatusCode::kInvalidArgument)
        << line;
    EXPECT_THAT(std::string(record.status().message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace rankwise
