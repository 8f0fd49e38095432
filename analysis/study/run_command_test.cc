#include "analysis/study/run_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;
using ::testing::StartsWith;

TEST(RunArguments, SayWhatTheRunIs) {
  StudyConfig config;
  config.cores = 8;
  config.trainer_flags = {"--lr=0.01"};
  const auto arguments =
      RunArguments(config, {"ddp", 2, 32, 1}, "/out/a.jsonl");
  for (const char* expected :
       {"--record=/out/a.jsonl", "--batch_size=32", "--nproc=2",
        "--max_steps=60", "--threads=4", "--seed=0", "--lr=0.01",
        // 64 examples of 2 ranks in 60 steps
        "--train_size=7680", "--epochs=1"}) {
    EXPECT_THAT(arguments, Contains(expected));
  }
  EXPECT_THAT(RunArguments(config, {"single", 1, 64, 1}, "/out/a.jsonl"),
              Each(Not(StartsWith("--nproc"))));
}

TEST(RunArguments, SayHowThePipelineIsCut) {
  const StudyConfig config;
  const auto arguments =
      RunArguments(config, {"pipeline", 2, 16, 1, "interleaved_1f1b", 4}, "r");
  for (const char* expected :
       {"--nproc=2", "--pp=2", "--dp=1", "--schedule=interleaved_1f1b",
        "--chunks=2", "--microbatches=4", "--batch_size=16"}) {
    EXPECT_THAT(arguments, Contains(expected));
  }
  EXPECT_THAT(RunArguments(config, {"pipeline", 2, 16, 1, "1f1b", 4}, "r"),
              Contains("--chunks=1"));
  EXPECT_THAT(RunArguments(config, {"model_parallel", 2, 64}, "r"),
              AllOf(Contains("--nproc=2"), Contains("--batch_size=64"),
                    Each(Not(StartsWith("--schedule")))));
}

TEST(RunArguments, AllRunsDifferInNothingButBatchRanksAndRecord) {
  StudyConfig config;
  config.trainers = {"single", "ddp", "model_parallel"};
  config.train_size = 1000;
  config.comm_bench = false;
  std::map<std::string, std::set<std::string>> values;
  for (const PlannedRun& run : PlanStudy(config).runs) {
    for (const std::string& flag : RunArguments(config, run, run.FileStem())) {
      const size_t equals = flag.find('=');
      values[flag.substr(0, equals)].insert(flag.substr(equals));
    }
  }
  for (const auto& [flag, different] : values) {
    const bool may_differ = flag == "--record" || flag == "--batch_size" ||
                            flag == "--nproc" || flag == "--traffic_steps" ||
                            flag == "--skip_communication";
    EXPECT_TRUE(different.size() == 1 || may_differ) << flag;
  }
}

TEST(RunArguments, LargerBatchesGetAsManyExamples) {
  StudyConfig config;
  config.largest_global_batch = 1000;
  EXPECT_THAT(RunArguments(config, {"ddp", 2, 64, 1}, "r"),
              Contains("--train_size=60000"));
}

TEST(RunArguments, DdpRecordsItsTraffic) {
  const StudyConfig config;
  EXPECT_THAT(RunArguments(config, {"ddp", 2, 64}, "r"),
              AllOf(Contains("--traffic_steps=5"),
                    Not(Contains("--skip_communication=true"))));
  EXPECT_THAT(RunArguments(config, {"ddp", 2, 64, 1, "", 1, true}, "r"),
              AllOf(Contains("--skip_communication=true"),
                    Each(Not(StartsWith("--traffic_steps")))));
  EXPECT_THAT(RunArguments(config, {"single", 1, 64}, "r"),
              Each(Not(StartsWith("--traffic_steps"))));
}

TEST(RunArguments, TheBenchmarkTakesFewOfTheTrainersFlags) {
  StudyConfig config;
  config.trainer_flags = {"--backend=gloo", "--model=vit"};
  EXPECT_THAT(RunArguments(config, {"comm_bench", 4, 0}, "r"),
              AllOf(Contains("--nproc=4"), Contains("--record=r"),
                    Contains("--collectives=all_reduce,send_recv,ping_pong"),
                    Contains("--max_bytes=16M"), Contains("--timing=host"),
                    Contains("--backend=gloo"), Not(Contains("--model=vit"))));
}

TEST(RunArguments, EpochsSufficeForASmallTrainingSet) {
  StudyConfig config;  // 60 steps of at most 128 examples
  config.train_size = 1280;
  EXPECT_THAT(RunArguments(config, {"ddp", 2, 64, 1}, "r"),
              Contains("--epochs=6"));
  config.train_size = 5;
  EXPECT_THAT(RunArguments(config, {"ddp", 2, 64, 1}, "r"),
              Contains("--epochs=60"));
}

}  // namespace
}  // namespace rankwise
