#include "records/record_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

RunRecord ExampleRun() {
  RunRecord run;
  run.run_id = "20260131-235959-9f3a02c1";
  run.binary = "ddp";
  run.git_commit = std::string(40, 'a');
  run.flags = {{"batch_size", "64"}, {"model", "simple_cnn"}};
  run.config_hash = "0123456789abcdef";
  run.scaling_hash = "fedcba9876543210";
  run.rank = 1;
  run.world_size = 2;
  run.backend = "gloo";
  run.host = {"node-3", "A CPU \"fast\"", 8, 1LL << 35};
  run.devices = {"cpu"};
  run.threads_per_rank = 4;
  run.versions = {"2.11.0", "", "", "g++ 12.2.0"};
  run.forward_flops_per_example = 5e8;
  run.source_hash = "00112233445566aa";
  run.git_state = "modified";
  run.example = "sequence";
  run.tokens_per_example = 128;
  run.mesh = {{"dp", 1}, {"tp", 2}};
  run.host_index = 1;
  run.hosts = 3;
  run.ranks_on_host = 2;
  run.peak_flops_per_second = 1.5e11;
  run.peak_bytes_per_second = 2e10;
  run.step_bytes = 4e8;
  return run;
}

StepRecord ExampleStep() {
  return {1, 7, 2, 2.302585092994046, 0.07, 0.001, 0.02, 0.04, 0.005, 0.01, 64};
}

ScheduleRecord ExampleSchedule() {
  ScheduleRecord schedule;
  schedule.rank = 3;
  schedule.step = 7;
  schedule.schedule = "1f1b";
  schedule.pipeline_rank = 1;
  schedule.pipeline_size = 2;
  schedule.replica = 1;
  schedule.replicas = 2;
  schedule.stages = 4;
  schedule.micro_batches = 8;
  schedule.schedule_seconds = 0.5;
  schedule.span_seconds = 0.4375;
  schedule.busy_seconds = 0.375;
  schedule.wait_seconds = 0.0625;
  schedule.transfer_seconds = 0.03125;
  schedule.sent_bytes = 4096;
  schedule.received_bytes = 8192;
  schedule.peak_activations = 3;
  schedule.exposed_transfer_seconds = 0.015625;
  schedule.predicted_seconds = 0.25;
  schedule.predicted_span_bubble = 0.125;
  schedule.predicted_wall_bubble = 0.2;
  schedule.planned_for_seconds = {{"F", 0.5}};
  return schedule;
}

template <typename T>
T ParseAs(const std::string& line) {
  absl::StatusOr<Record> record = ParseRecord(line);
  EXPECT_TRUE(record.ok()) << record.status();
  return std::get<T>(*record);
}

TEST(RecordJson, StepIsTheTextOfTheGrammar) {
  EXPECT_EQ(
      ToJsonLine(ExampleStep()),
      "{\"kind\":\"step\",\"rank\":1,\"step\":7,\"epoch\":2,"
      "\"loss\":2.302585092994046,\"step_seconds\":0.07,"
      "\"data_wait_seconds\":0.001,\"forward_seconds\":0.02,"
      "\"backward_seconds\":0.04,\"optimizer_seconds\":0.005,"
      "\"exposed_comm_seconds\":0.01,\"examples\":64,"
      "\"captured_seconds\":0,\"exposed_by_axis_seconds\":{},\"units\":[],"
      "\"first_device_seconds\":{}}");
}

TEST(RecordJson, AStepsWaitingIsKeptByAxis) {
  StepRecord step = ExampleStep();
  step.exposed_by_axis_seconds = {{"tp", 0.0075}, {"dp", 0.0025}};
  const std::string line = ToJsonLine(step);
  EXPECT_THAT(
      line,
      HasSubstr("\"exposed_by_axis_seconds\":{\"dp\":0.0025,\"tp\":0.0075}"));
  EXPECT_EQ(ParseAs<StepRecord>(line).exposed_by_axis_seconds,
            step.exposed_by_axis_seconds);
}

TEST(RecordJson, AStepsWaitingIsKeptByUnit) {
  StepRecord step = ExampleStep();
  step.units = {{"block_0", 0.25, 0.5, 1}, {"head", 0, 0.125, 0}};
  const StepRecord back = ParseAs<StepRecord>(ToJsonLine(step));
  ASSERT_EQ(back.units.size(), 2);
  EXPECT_EQ(back.units[0].unit, "block_0");
  EXPECT_EQ(back.units[0].all_gather_seconds, 0.25);
  EXPECT_EQ(back.units[0].prefetch_misses, 1);
  EXPECT_EQ(back.units[1].reduce_scatter_seconds, 0.125);
}

TEST(RecordJson, EveryKindComesBackAsItWent) {
  const std::vector<Record> records = {
      ExampleRun(),
      ExampleStep(),
      EpochRecord{0, 1, 1.5, 50000, 31.25},
      EvalRecord{0, 1, 1.25, 5012, 10000, 2.5},
      CheckpointRecord{0, 782, 1, "/tmp/a \"b\"\n/ckpt", 25700000, 0.125,
                       0.0625},
      RestartRecord{0, 1, "rank 1 ended with signal 9", 781, 1.75e9, 1.75e9 + 1,
                    1.75e9 + 2.5},
      DivergenceRecord{1, 7, "the gradients' norm of step 7 is inf on rank 1"},
      UpdateRecord{0, 7, 2, 7, 5, 19, 13, 1.25},
      ExampleSchedule(),
      CollectiveRecord(),
      OverlapRecord(),
      TrafficRecord(),
      EnvironmentRecord(),
      MemoryRecord{
          1, 1 << 30, 0, {100, 200, 300, 0, 400}, {101, 201, 301, 1, 401}},
      TimelineRecord{1, 2, 7, "1f1b", "simulated", {{"F", 1, 2, 0.5, 0.75}}}};
  for (const Record& record : records) {
    const std::string line = ToJsonLine(record);
    EXPECT_THAT(line, StartsWith("{\"kind\":\""));
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    absl::StatusOr<Record> back = ParseRecord(line);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->index(), record.index());
    EXPECT_EQ(ToJsonLine(*back), line);
  }
}

TEST(RecordJson, ScheduleIsTheTextOfTheGrammar) {
  EXPECT_EQ(ToJsonLine(ExampleSchedule()),
            "{\"kind\":\"schedule\",\"rank\":3,\"step\":7,"
            "\"schedule\":\"1f1b\",\"pipeline_rank\":1,\"pipeline_size\":2,"
            "\"replica\":1,\"replicas\":2,\"stages\":4,\"micro_batches\":8,"
            "\"schedule_seconds\":0.5,\"span_seconds\":0.4375,"
            "\"busy_seconds\":0.375,\"wait_seconds\":0.0625,"
            "\"exposed_transfer_seconds\":0.015625,"
            "\"transfer_seconds\":0.03125,\"sent_bytes\":4096,"
            "\"received_bytes\":8192,\"peak_activations\":3,"
            "\"predicted_seconds\":0.25,\"predicted_span_bubble\":0.125,"
            "\"predicted_wall_bubble\":0.2,"
            "\"planned_for_seconds\":{\"F\":0.5}}");
}

// Returns `text` without the fields added by a later version.
std::string Without(const std::string& text, const std::string& added) {
  const std::string older = absl::StrReplaceAll(text, {{added, ""}});
  EXPECT_NE(older, text) << added;
  return older;
}

TEST(RecordJson, FieldsThatARunOfAnOlderVersionLacksKeepTheirDefaults) {
  const std::string line = ToJsonLine(ExampleRun());
  const RunRecord run = ParseAs<RunRecord>(line);
  EXPECT_EQ(run.forward_flops_per_example, 5e8);
  EXPECT_EQ(run.mesh[1].name, "tp");
  EXPECT_EQ(run.hosts, 3);
  EXPECT_EQ(run.step_bytes, 4e8);
  const std::vector<std::pair<std::string, void (*)(RunRecord&)>> added = {
      {R"(,"forward_flops_per_example":5e+08)",
       [](RunRecord& older) { older.forward_flops_per_example = 0; }},
      {R"(,"source_hash":"00112233445566aa","git_state":"modified",)"
       R"("example":"sequence","tokens_per_example":128)",
       [](RunRecord& older) {
         older.source_hash = older.example = "";
         older.git_state = "unknown";
         older.tokens_per_example = 0;
       }},
      {R"(,"mesh":[{"name":"dp","size":1},{"name":"tp","size":2}])",
       [](RunRecord& older) { older.mesh = {}; }},
      {R"(,"host_index":1,"hosts":3,"ranks_on_host":2)",
       [](RunRecord& older) {
         older.host_index = older.hosts = older.ranks_on_host = 0;
       }},
      {R"(,"peak_flops_per_second":1.5e+11,"peak_bytes_per_second":2e+10,)"
       R"("step_bytes":4e+08)",
       [](RunRecord& older) {
         older.peak_flops_per_second = older.peak_bytes_per_second = 0;
         older.step_bytes = 0;
       }}};
  std::string all;
  for (const auto& [fields, set_defaults] : added) {
    all += fields;
    RunRecord older = ExampleRun();
    set_defaults(older);
    EXPECT_EQ(ToJsonLine(ParseAs<RunRecord>(Without(line, fields))),
              ToJsonLine(older));
  }
  EXPECT_THAT(line, HasSubstr(all + "}"));  // in the grammar's order
}

TEST(RecordJson, StepsAndSchedulesOfOlderVersionsAreRead) {
  StepRecord step = ExampleStep();
  step.captured_seconds = 0.0625;
  step.first_device_seconds = {{"scatter", 0.25}, {"loss", 0.5}};
  const std::string line = ToJsonLine(step);
  EXPECT_EQ(ParseAs<StepRecord>(line).captured_seconds, 0.0625);
  EXPECT_EQ(ParseAs<StepRecord>(line).first_device_seconds,
            step.first_device_seconds);
  const auto older = ParseAs<StepRecord>(
      Without(Without(line, R"(,"captured_seconds":0.0625,)"
                            R"("exposed_by_axis_seconds":{})"),
              R"(,"first_device_seconds":{"loss":0.5,"scatter":0.25})"));
  EXPECT_EQ(older.captured_seconds, 0);
  EXPECT_TRUE(older.first_device_seconds.empty());
  EXPECT_EQ(older.examples, 64);
  const auto schedule = ParseAs<ScheduleRecord>(
      Without(ToJsonLine(ExampleSchedule()),
              R"("exposed_transfer_seconds":0.015625,)"));
  EXPECT_TRUE(std::isnan(schedule.exposed_transfer_seconds));
  EXPECT_EQ(schedule.sent_bytes, 4096);
}

TEST(RecordJson, ALayerKeepsItsPasses) {
  const LayerRecord layer = {0,   1,   "conv2", 64,          1e9,
                             2e9, 5e6, 15e6,    {0.5, 0.25}, {0.75, 1}};
  const auto read = ParseAs<LayerRecord>(ToJsonLine(layer));
  EXPECT_EQ(read.name, "conv2");
  EXPECT_EQ(read.backward_flops, 2e9);
  EXPECT_EQ(read.backward_bytes, 15e6);
  EXPECT_EQ(read.forward_seconds, layer.forward_seconds);
  EXPECT_EQ(read.backward_seconds, layer.backward_seconds);
}

TEST(RecordJson, RunKeepsNestedFields) {
  const RunRecord run = ParseAs<RunRecord>(ToJsonLine(ExampleRun()));
  EXPECT_EQ(run.flags, ExampleRun().flags);
  EXPECT_EQ(run.host.cpu_model, "A CPU \"fast\"");
  EXPECT_EQ(run.host.memory_bytes, 1LL << 35);
  EXPECT_EQ(run.devices, std::vector<std::string>{"cpu"});
  EXPECT_EQ(run.versions.compiler, "g++ 12.2.0");
}

TEST(RecordJson, DoublesReadBackBitEqual) {
  for (double value : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0}) {
    StepRecord step = ExampleStep();
    step.loss = value;
    const double back = ParseAs<StepRecord>(ToJsonLine(step)).loss;
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
}

TEST(RecordJson, NonFiniteLossesSurvive) {
  StepRecord step = ExampleStep();
  step.loss = std::nan("");
  EXPECT_TRUE(std::isnan(ParseAs<StepRecord>(ToJsonLine(step)).loss));
  step.loss = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ParseAs<StepRecord>(ToJsonLine(step)).loss, step.loss);
  step.loss = -step.loss;
  EXPECT_EQ(ParseAs<StepRecord>(ToJsonLine(step)).loss, step.loss);
}

// Clock errors; small negative durations are rounding.
TEST(RecordJson, ImpossibleDurationsAreRefused) {
  for (const double wrong :
       {-0.25, std::nan(""), std::numeric_limits<double>::infinity()}) {
    StepRecord step = ExampleStep();
    step.step_seconds = wrong;
    EXPECT_THAT(
        std::string(ParseRecord(ToJsonLine(step)).status().message()),
        AllOf(HasSubstr("\"step_seconds\" should be a number of seconds"),
              HasSubstr("the clock of that rank was wrong: record the "
                        "run again")));
  }
}

TEST(RecordJson, DurationsBelowZeroByRoundingAreZero) {
  StepRecord step = ExampleStep();
  step.step_seconds = -1e-9;
  EXPECT_EQ(ParseAs<StepRecord>(ToJsonLine(step)).step_seconds, 0);
}

TEST(RecordJson, PredictionsMayBeUnknown) {
  ScheduleRecord schedule = ExampleSchedule();
  schedule.predicted_seconds = std::nan("");
  schedule.predicted_span_bubble = std::numeric_limits<double>::infinity();
  const auto back = ParseAs<ScheduleRecord>(ToJsonLine(schedule));
  EXPECT_TRUE(std::isnan(back.predicted_seconds));
  EXPECT_TRUE(std::isnan(back.predicted_span_bubble));
  EXPECT_EQ(back.predicted_wall_bubble, 0.2);
}

TEST(RecordJson, PredictionsThatRoundingPutOutsideAreWrittenAsTheBound) {
  ScheduleRecord schedule = ExampleSchedule();
  schedule.predicted_span_bubble = -1e-17;
  schedule.predicted_wall_bubble = 1 + 1e-15;
  const auto back = ParseAs<ScheduleRecord>(ToJsonLine(schedule));
  EXPECT_EQ(back.predicted_span_bubble, 0);
  EXPECT_EQ(back.predicted_wall_bubble, 1);
}

TEST(RecordJson, BytesThatAreNotUtf8AreReplaced) {
  const CheckpointRecord checkpoint{0, 1, 1, "bad\xff", 1, 0};
  EXPECT_EQ(ParseAs<CheckpointRecord>(ToJsonLine(checkpoint)).path,
            "bad\xEF\xBF\xBD");
}

TEST(RecordJson, UnknownFieldsAreSkipped) {
  const std::string line = absl::StrReplaceAll(
      ToJsonLine(ExampleStep()),
      {{"\"loss\"", "\"grad_norm\":[1,{\"a\":2}],\"loss\""}});
  EXPECT_EQ(ParseAs<StepRecord>(line).step, 7);
}

TEST(RecordJson, FieldOrderIsFree) {
  EXPECT_EQ(
      ParseAs<EpochRecord>("{\"seconds\":1,\"examples\":5,\"mean_loss\":2,"
                           "\"epoch\":3,\"rank\":0,\"kind\":\"epoch\"}")
          .epoch,
      3);
}

// A line that should be rejected: a valid one with a part replaced.
struct Broken {
  Record good;
  std::string from, to, message;
};

TEST(RecordJson, BrokenRecordsSayWhatIsWrong) {
  const EvalRecord eval{0, 1, 1.25, 5, 10, 2.5};
  const std::vector<Broken> cases = {
      {ExampleStep(), "\"loss\":2.302585092994046,", "",
       "in the step record: the field \"loss\" is missing"},
      {ExampleStep(), ":2.302585092994046", ":\"much\"",
       "\"loss\" should be a number, \"NaN\", \"Infinity\" or \"-Infinity\", "
       "not \"much\""},
      {ExampleStep(), ":2.302585092994046", ":null", "not null"},
      {ExampleStep(), "\"step\":7", "\"step\":7.5",
       "\"step\" should be an integer of at least 0, not 7.5"},
      {ExampleStep(), "\"examples\":64", "\"examples\":-64",
       "\"examples\" should be an integer of at least 0, not -64"},
      {ExampleStep(), "\"examples\":64", "\"examples\":9223372036854775808",
       "not 9223372036854775808"},
      {ExampleStep(), "\"step_seconds\":0.07", "\"step_seconds\":-1",
       "\"step_seconds\" should be a number of seconds, 0 or more, not -1"},
      {ExampleStep(), "{\"kind\"", "[\"kind\"", "this is not JSON"},
      {ExampleStep(), "\"kind\":\"step\"", "\"kind\":3",
       "no \"kind\" that is a string"},
      {ExampleStep(), "\"kind\":\"step\",", "", "no \"kind\" that is a string"},
      {ExampleStep(), "\"rank\":1", "\"rank\":\xff", "this is not JSON"},
      {ExampleStep(), "\"rank\":1", "\"rank\":true", "not true"},
      {ExampleRun(), "\"1.12\"", "\"one\"",
       "schema_version should be \"major.minor\", not \"one\""},
      {ExampleRun(), "\"1.12\"", "1.0", "should be a string, not 1.0"},
      {ExampleRun(), "\"world_size\":2", "\"world_size\":0",
       "\"world_size\" should be an integer of at least 1, not 0"},
      {ExampleRun(), "\"rank\":1", "\"rank\":2",
       "rank 2 is not below world_size 2"},
      {ExampleRun(), "\"batch_size\":\"64\"", "\"batch_size\":64",
       "\"flags.batch_size\" should be a string, not 64"},
      {ExampleRun(), "\"batch_size\":\"64\"", "\"\\u001b[2J\":64",
       "\"flags.\\x1b[2J\" should be a string, not 64"},
      {ExampleRun(), "[\"cpu\"]", "\"cpu\"",
       "\"devices\" should be a list of strings"},
      {ExampleRun(), "[\"cpu\"]", "[0]",
       "\"devices\" should be a list of strings"},
      {ExampleRun(), "\"cores\":8", "\"cores\":\"8\"",
       "in the run.host record: \"cores\" should be an integer"},
      {ExampleRun(), "\"versions\":{", "\"versions\":[],\"v\":{",
       "\"versions\" should be an object, not []"},
      {ExampleRun(), "5e+08", "-1",
       "\"forward_flops_per_example\" should be 0 or more"},
      {ExampleRun(), "5e+08", "\"NaN\"",
       "\"forward_flops_per_example\" should be 0 or more"},
      {ExampleStep(), "\"captured_seconds\":0", "\"captured_seconds\":-1",
       "\"captured_seconds\" should be a number of seconds"},
      {ExampleStep(), "_axis_seconds\":{}", "_axis_seconds\":{\"tp\":-1}",
       "\"exposed_by_axis_seconds.tp\" should be a number of seconds"},
      {ExampleRun(), "\"size\":2", "\"size\":3",
       "the product of the sizes in \"mesh\" is not \"world_size\""},
      {eval, "\"total\":10", "\"total\":{}", "in the eval record: \"total\""},
      {ExampleSchedule(), "\"step\":7,", "",
       "in the schedule record: the field \"step\" is missing"},
      {ExampleSchedule(), "\"1f1b\"", "1",
       "\"schedule\" should be a string, not 1"},
      {ExampleSchedule(), "\"pipeline_rank\":1", "\"pipeline_rank\":2",
       "pipeline_rank 2 is not below pipeline_size 2"},
      {ExampleSchedule(), "\"replica\":1", "\"replica\":2",
       "replica 2 is not below replicas 2"},
      {ExampleSchedule(), "\"stages\":4", "\"stages\":0",
       "\"stages\" should be an integer of at least 1, not 0"},
      {ExampleSchedule(), "\"micro_batches\":8", "\"micro_batches\":0",
       "\"micro_batches\" should be an integer of at least 1, not 0"},
      {ExampleSchedule(), "\"sent_bytes\":4096", "\"sent_bytes\":-1",
       "\"sent_bytes\" should be an integer of at least 0, not -1"},
      {ExampleSchedule(), "\"busy_seconds\":0.375", "\"busy_seconds\":\"NaN\"",
       "\"busy_seconds\" should be a number of seconds, 0 or more"},
      {ExampleSchedule(), "\"predicted_seconds\":0.25",
       "\"predicted_seconds\":-1",
       "\"predicted_seconds\" should be a number of 0 or more, or \"NaN\", "
       "not -1"},
      {ExampleSchedule(), "\"predicted_wall_bubble\":0.2",
       "\"predicted_wall_bubble\":1.5",
       "\"predicted_wall_bubble\" should be a number from 0 to 1, or \"NaN\", "
       "not 1.5"},
      {ExampleSchedule(), "\"predicted_wall_bubble\":0.2",
       "\"predicted_wall_bubble\":\"Infinity\"", "not \"Infinity\""},
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

TEST(RecordJson, LongValuesAreCutInMessages) {
  const std::string line = absl::StrReplaceAll(
      ToJsonLine(ExampleStep()),
      {{"\"rank\":1", "\"rank\":\"" + std::string(5000, 'x') + "\""}});
  EXPECT_LT(ParseRecord(line).status().message().size(), 200u);
}

TEST(RecordJson, NotAnObject) {
  for (const char* line : {"", "5", "[]", "\"step\"", "{", "{}x", "\x01"}) {
    EXPECT_EQ(ParseRecord(line).status().code(),
              absl::StatusCode::kInvalidArgument)
        << line;
  }
  EXPECT_THAT(
      std::string(ParseRecord("[1]").status().message()),
      HasSubstr("a record is a JSON object, and this is of type array"));
}

TEST(RecordJson, DeepNestingIsOnlyAnotherBadLine) {
  const std::string deep(100000, '[');
  EXPECT_FALSE(ParseRecord(deep).ok());
  const std::string closed = deep + std::string(deep.size(), ']');
  EXPECT_FALSE(ParseRecord(closed).ok());
}

TEST(RecordJson, UnknownKindIsNotFound) {
  const absl::Status status =
      ParseRecord("{\"kind\":\"bubble\",\"rank\":0}").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the record kind \"bubble\" is not known"));
}

TEST(RecordJson, OtherMajorVersionsAreRefusedWithoutLookingFurther) {
  const absl::Status newer =
      ParseRecord("{\"kind\":\"run\",\"schema_version\":\"2.3\"}").status();
  EXPECT_EQ(newer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(newer.message()),
              HasSubstr("schema version 2.3, and this reader reads 1.x: use a "
                        "newer rankwise"));
  const absl::Status older =
      ParseRecord("{\"kind\":\"run\",\"schema_version\":\"0.9\"}").status();
  EXPECT_THAT(std::string(older.message()),
              HasSubstr("use the rankwise that wrote them"));
}

TEST(RecordJson, NewerMinorVersionsAreRead) {
  const std::string line =
      absl::StrReplaceAll(ToJsonLine(ExampleRun()), {{"\"1.12\"", "\"1.99\""}});
  EXPECT_EQ(ParseAs<RunRecord>(line).schema_version, "1.99");
}

}  // namespace
}  // namespace rankwise
