#include "analysis/study/study_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace rankwise {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Stems(const StudyConfig& config) {
  std::vector<std::string> stems;
  for (const PlannedRun& run : PlanStudy(config)) {
    stems.push_back(run.FileStem());
  }
  return stems;
}

TEST(PlanStudy, SharedConfigurationsRunOnce) {
  StudyConfig config;
  config.repetitions = 1;
  EXPECT_THAT(
      Stems(config),
      UnorderedElementsAre("single-x1-batch64-rep1", "ddp-x1-batch64-rep1",
                           "ddp-x2-batch32-rep1", "ddp-x2-batch64-rep1"));
}

TEST(PlanStudy, OneWayOfScaling) {
  StudyConfig config;
  config.repetitions = 1;
  config.trainers = {"ddp"};
  config.world_sizes = {2, 4};
  config.scalings = {Scaling::kStrong};
  EXPECT_THAT(Stems(config), UnorderedElementsAre("ddp-x2-batch32-rep1",
                                                  "ddp-x4-batch16-rep1"));
}

TEST(PlanStudy, EveryRepetitionOnceInAnOrderOfTheSeed) {
  StudyConfig config;
  config.repetitions = 7;
  const std::vector<std::string> stems = Stems(config);
  EXPECT_EQ(stems.size(), 28u);
  EXPECT_EQ(std::set<std::string>(stems.begin(), stems.end()).size(), 28u);
  EXPECT_EQ(Stems(config), stems);
  config.seed = 1;
  EXPECT_NE(Stems(config), stems);
}

TEST(PlanStudy, RepetitionsAreMixed) {
  StudyConfig config;
  config.repetitions = 10;
  std::vector<std::string> first_ten;
  for (const PlannedRun& run : PlanStudy(config)) {
    if (first_ten.size() < 10) first_ten.push_back(run.Name());
  }
  EXPECT_THAT(first_ten, Not(Each(first_ten[0])));
}

TEST(TrainerArguments, SayWhatTheRunIs) {
  StudyConfig config;
  config.cores = 8;
  config.trainer_flags = {"--lr=0.01"};
  const auto arguments =
      TrainerArguments(config, {"ddp", 2, 32, 1}, "/out/a.jsonl");
  for (const char* expected :
       {"--record=/out/a.jsonl", "--batch_size=32", "--nproc=2",
        "--max_steps=60", "--threads=4", "--seed=0", "--lr=0.01",
        // 64 examples of 2 ranks in 60 steps
        "--train_size=7680", "--epochs=1"}) {
    EXPECT_THAT(arguments, Contains(expected));
  }
  EXPECT_THAT(TrainerArguments(config, {"single", 1, 64, 1}, "/out/a.jsonl"),
              Each(Not(StartsWith("--nproc"))));
}

TEST(TrainerArguments, AllRunsDifferInNothingButBatchRanksAndRecord) {
  StudyConfig config;
  config.train_size = 1000;
  std::map<std::string, std::set<std::string>> values;
  for (const PlannedRun& run : PlanStudy(config)) {
    for (const std::string& flag :
         TrainerArguments(config, run, run.FileStem())) {
      const size_t equals = flag.find('=');
      values[flag.substr(0, equals)].insert(flag.substr(equals));
    }
  }
  for (const auto& [flag, different] : values) {
    const bool may_differ =
        flag == "--record" || flag == "--batch_size" || flag == "--nproc";
    EXPECT_EQ(different.size() > 1, may_differ) << flag;
  }
}

TEST(TrainerArguments, EpochsSufficeForASmallTrainingSet) {
  StudyConfig config;  // 60 steps of at most 128 examples
  config.train_size = 1280;
  EXPECT_THAT(TrainerArguments(config, {"ddp", 2, 64, 1}, "r"),
              Contains("--epochs=6"));
  config.train_size = 5;
  EXPECT_THAT(TrainerArguments(config, {"ddp", 2, 64, 1}, "r"),
              Contains("--epochs=60"));
}

}  // namespace
}  // namespace rankwise
