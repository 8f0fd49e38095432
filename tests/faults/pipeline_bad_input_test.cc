// Tests invalid divisions of a model into stages: each run must end before any
// rank is started, with exit code 2 and one line that states the error and the
// remedy.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct BadInput {
  std::string name;
  std::string trainer;
  std::vector<std::string> flags;
  std::string message;  // must be in stderr
};

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

const char kTwo[] = "--nproc=2";

std::vector<BadInput> BadSchedules() {
  return {
      {"Schedule",
       "pipeline",
       {kTwo, "--schedule=dualpipe"},
       "--schedule=dualpipe: neither a schedule (naive, gpipe, 1f1b, "
       "interleaved_1f1b, zero_bubble_h1, zero_bubble_h2, zbv, dualpipev, "
       "zero_bubble_auto) nor a CSV file that exists"},
      {"TooFewMicroBatches",
       "pipeline",
       {kTwo, "--schedule=dualpipev", "--microbatches=3"},
       "--microbatches=3: --schedule=dualpipev needs 2 micro-batches per rank"},
      {"ScheduleFile",
       "pipeline",
       {kTwo, "--schedule=/nonexistent-folder/order.csv"},
       "--schedule=/nonexistent-folder/order.csv: neither"},
      {"ScheduleIsADevice",
       "pipeline",
       {kTwo, "--schedule=/dev/null"},
       "--schedule=/dev/null: is a device, not a CSV file"},
      {"ScheduleIsAFolder",
       "pipeline",
       {kTwo, "--schedule=/dev"},
       "--schedule=/dev: is a folder, not a CSV file"},
      {"RanksTimesReplicas", "pipeline", {"--nproc=4", "--pp=3"}, "4"},
      {"ReplicasThatDoNotDivide", "pipeline", {"--nproc=3", "--dp=2"}, "3"},
      {"MoreReplicasThanRanks", "pipeline", {kTwo, "--dp=3"}, "3"},
      {"ReplicasZero",
       "pipeline",
       {kTwo, "--dp=-1"},
       "--dp=-1: must be between 0 and 1048576"},
      {"RanksNegative",
       "pipeline",
       {kTwo, "--pp=-1"},
       "--pp=-1: must be between 0 and 1048576"},
      {"MicroBatchesZero",
       "pipeline",
       {kTwo, "--microbatches=0"},
       "--microbatches=0: must be between 1 and 1048576"},
      {"Chunks",
       "pipeline",
       {kTwo, "--chunks=-1"},
       "--chunks=-1: must be between 0 and 1048576"},
      {"ChunksOfAnotherSchedule",
       "pipeline",
       {kTwo, "--schedule=1f1b", "--chunks=2"},
       "chunks"},
      {"Accumulate",
       "pipeline",
       {kTwo, "--accumulate=4"},
       "--accumulate=4: pipeline does not take it: it accumulates over its "
       "--microbatches"},
      {"TraceFolder",
       "pipeline",
       {kTwo, "--trace=/nonexistent-folder/trace.json"},
       "the folder /nonexistent-folder does not exist"},
      {"DevicesAndProcesses",
       "pipeline",
       {kTwo, "--devices=cpu,cpu"},
       "--devices=cpu,cpu: is a model cut within one process; leave it out"},
      {"DevicesAndReplicas",
       "pipeline",
       {"--devices=cpu,cpu", "--dp=2"},
       "--devices=cpu,cpu: one process runs only one pipeline; leave out --dp"},
      {"DevicesAndRanks",
       "pipeline",
       {"--devices=cpu,cpu", "--pp=3"},
       "2 devices are 2 ranks, not --pp=3"},
      {"DeviceAndRanks",
       "pipeline",
       {"--devices=cpu", "--pp=3"},
       "1 device is 1 rank, not --pp=3"},
      {"RankAndRanks",
       "pipeline",
       {kTwo, "--pp=1", "--dp=1"},
       "--pp=1 --dp=1 is 1 rank, but the job has 2"},
      {"DeviceOfAPipelineMissing",
       "pipeline",
       {"--devices=cuda:0,cuda:1000"},
       " is not there: "},
      {"MoreDevicesThanLayers",
       "pipeline",
       {"--devices=cpu,cpu,cpu,cpu,cpu"},
       "--devices=cpu,cpu,cpu,cpu,cpu: --split=flops: 5 stages"},
      {"SimulatedRanks",
       "pipeline",
       {"--backend=fake", "--eval=false"},
       "--backend=fake: pipeline does not take it: simulated"},
  };
}

std::vector<BadInput> BadSplits() {
  return {
      {"CutOutside", "pipeline", {kTwo, "--split=7"}, "--split=7: "},
      {"CutAtTheStart", "pipeline", {kTwo, "--split=0"}, "--split=0: "},
      {"CutsNotAscending",
       "pipeline",
       {"--nproc=3", "--split=2,1"},
       "--split=2,1: "},
      {"TooManyCuts", "pipeline", {kTwo, "--split=1,2"}, "--split=1,2: "},
      {"CutIsNoNumber", "pipeline", {kTwo, "--split=2x"}, "--split=2x: "},
      {"NoCut", "pipeline", {kTwo, "--split="}, "--split=: "},
      {"Word",
       "pipeline",
       {kTwo, "--split=memory"},
       "--split=memory: must be layers, parameters, flops, time, or cuts such "
       "as 2,5"},
      {"MoreStagesThanLayers", "pipeline", {"--nproc=5"}, "--split=flops: "},
      {"SplitOfModelParallel", "model_parallel", {"--split=4"}, "--split=4: "},
  };
}

std::vector<BadInput> BadModels() {
  return {
      {"OneDevice",
       "model_parallel",
       {"--devices=cpu"},
       "--devices=cpu: model parallelism needs two devices at least"},
      {"MissingDevice",
       "model_parallel",
       {"--devices=cpu,cuda:1000"},
       "--devices=cpu,cuda:1000: cuda:1000 is not there: "},
      {"Devices",
       "model_parallel",
       {"--devices=left,right"},
       "\"left\" is not a device; write cpu or cuda:N"},
      {"SimulatedDevices",
       "model_parallel",
       {"--backend=fake", "--eval=false"},
       "--backend=fake: model_parallel does not take it: simulated"},
      {"DevicesAndProcessesOfModelParallel",
       "model_parallel",
       {kTwo, "--devices=cpu,cpu"},
       "--devices=cpu,cpu: is a model cut within one process; leave it out"},
      {"ModelSize",
       "pipeline",
       {kTwo, "--model=gpt", "--model_size=huge"},
       "--model_size=huge"},
      {"DepthWithoutUse",
       "single",
       {"--model=simple_cnn", "--depth=3"},
       "--depth=3: --model=simple_cnn does not take it; only --model=mlp, gpt, "
       "llama, vit do"},
      {"TextWithoutFile",
       "single",
       {"--model=gpt", "--dataset=text"},
       "--data_dir"},
  };
}

void ExpectRefused(const Finished& run, const std::string& trainer,
                   const std::string& message) {
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(StartsWith(trainer + ": error: "),
                             HasSubstr(message), Not(HasSubstr("frame #"))));
}

class BadStagesTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadStagesTest, AreRefusedInOneLine) {
  const BadInput& input = GetParam();
  const Finished run = RunTrainer(input.trainer, input.flags);
  ExpectRefused(run, input.trainer, input.message);
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
}

std::string NameOf(const ::testing::TestParamInfo<BadInput>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Schedules, BadStagesTest,
                         ::testing::ValuesIn(BadSchedules()), NameOf);
INSTANTIATE_TEST_SUITE_P(Splits, BadStagesTest,
                         ::testing::ValuesIn(BadSplits()), NameOf);
INSTANTIATE_TEST_SUITE_P(Models, BadStagesTest,
                         ::testing::ValuesIn(BadModels()), NameOf);

Finished RunFile(const std::string& rows) {
  const std::string file = FreshDir("csv") + "/order.csv";
  std::ofstream(file) << rows;
  return RunTrainer("pipeline",
                    {kTwo, "--microbatches=2", "--schedule=" + file});
}

TEST(BadScheduleFileTest, ADeadlockIsShownAsACircle) {
  const Finished run = RunFile("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  ExpectRefused(run, "pipeline", "order.csv");
  EXPECT_THAT(
      run.err,
      AllOf(HasSubstr("deadlock, ranks wait for each other in a cycle"),
            HasSubstr("(0B0) waits for 1B0, which is action 4 of rank 1"),
            HasSubstr("(1F1) waits for 0F1, which is action 3 of rank "
                      "0")));
}

TEST(BadScheduleFileTest, AnotherNumberOfRanksOrMicroBatchesIsNamed) {
  ExpectRefused(RunFile("0F0,0F1,0B0,0B1\n"), "pipeline", "order.csv");
  ExpectRefused(RunFile("0F0,0B0\n1F0,1B0\n"), "pipeline", "order.csv");
}

TEST(BadScheduleFileTest, ACellThatIsNoActionIsNamed) {
  const Finished run = RunFile("0F0,0F1,0B0,0B1\n1F0,1X0,1F1,1B1\n");
  ExpectRefused(run, "pipeline", "1X0");
}

}  // namespace
}  // namespace rankwise
