#include "analysis/study/study_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Only the compared runs.
StudyConfig WithoutAuxiliaries() {
  StudyConfig config;
  config.ablations = 0;
  config.comm_bench = false;
  return config;
}

std::vector<std::string> Stems(const StudyConfig& config) {
  std::vector<std::string> stems;
  for (const PlannedRun& run : PlanStudy(config).runs) {
    stems.push_back(run.FileStem());
  }
  return stems;
}

TEST(PlanStudy, SharedConfigurationsRunOnce) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 1;
  EXPECT_THAT(
      Stems(config),
      UnorderedElementsAre("single-x1-batch64-rep1", "ddp-x1-batch64-rep1",
                           "ddp-x2-batch32-rep1", "ddp-x2-batch64-rep1",
                           "model_parallel-x2-batch64-rep1",
                           "pipeline-gpipe-x2-batch4x16-rep1",
                           "pipeline-1f1b-x2-batch4x16-rep1",
                           "pipeline-interleaved_1f1b-x2-batch4x16-rep1",
                           "pipeline-zero_bubble_h1-x2-batch4x16-rep1"));
  EXPECT_THAT(PlanStudy(config).not_run, IsEmpty());
}

TEST(PlanStudy, PipelinesUnderBothWaysOfScaling) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 1;
  config.trainers = {"model_parallel", "pipeline"};
  config.schedules = {"1f1b"};
  config.pipeline_scalings = {Scaling::kStrong, Scaling::kWeak};
  config.world_sizes = {1, 2, 4};
  EXPECT_THAT(
      Stems(config),
      UnorderedElementsAre(
          "model_parallel-x2-batch64-rep1", "model_parallel-x2-batch128-rep1",
          "model_parallel-x4-batch64-rep1", "model_parallel-x4-batch256-rep1",
          "pipeline-1f1b-x2-batch4x16-rep1", "pipeline-1f1b-x2-batch8x16-rep1",
          "pipeline-1f1b-x4-batch4x16-rep1",
          "pipeline-1f1b-x4-batch16x16-rep1"));
}

TEST(PlanStudy, FsdpDividesTheBatchAsDdpDoes) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 1;
  config.trainers = {"fsdp"};
  config.scalings = {Scaling::kStrong, Scaling::kWeak};
  config.world_sizes = {2};
  config.zero_stages = {1, 3};
  EXPECT_THAT(Stems(config),
              UnorderedElementsAre(
                  "fsdp-zero1-x2-batch32-rep1", "fsdp-zero1-x2-batch64-rep1",
                  "fsdp-zero3-x2-batch32-rep1", "fsdp-zero3-x2-batch64-rep1"));
  for (const PlannedRun& run : PlanStudy(config).runs) {
    EXPECT_THAT(RunArguments(config, run, "r.jsonl"),
                testing::Contains(absl::StrCat("--zero=", run.zero)));
  }
}

TEST(PlanStudy, ReplicasOfOneProcessCountAsRanks) {
  StudyConfig config;
  config.repetitions = config.ablations = 1;
  config.trainers = {"single", "data_parallel"};
  config.world_sizes = {1, 2};
  EXPECT_THAT(
      Stems(config),
      UnorderedElementsAre("single-x1-batch64-rep1", "single-x1-batch32-rep1",
                           "data_parallel-x1-batch64-rep1",
                           "data_parallel-x2-batch32-rep1",
                           "data_parallel-x2-batch64-rep1"));
  EXPECT_THAT(RunArguments(config, {"data_parallel", 2, 32}, "r.jsonl"),
              AllOf(Contains("--replicas=2"), Contains("--batch_size=64"),
                    Not(Contains(StartsWith("--nproc"))),
                    Not(Contains(StartsWith("--traffic_steps")))));
  EXPECT_EQ((PlannedRun{"data_parallel", 2, 32}.Name()),
            "data_parallel x2, batch 32 per rank");
}

TEST(PlanStudy, TensorParallelAndHybridUnderBothWaysOfScaling) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 1;
  config.trainers = {"tensor_parallel", "hybrid"};
  config.schedules = {"1f1b"};
  config.pipeline_scalings = {Scaling::kStrong, Scaling::kWeak};
  config.world_sizes = {1, 2, 8};
  EXPECT_THAT(
      Stems(config),
      UnorderedElementsAre(
          "tensor_parallel-x2-batch64-rep1", "tensor_parallel-x2-batch128-rep1",
          "tensor_parallel-x8-batch64-rep1", "tensor_parallel-x8-batch512-rep1",
          "hybrid-tp2-x2-batch1x64-rep1", "hybrid-tp2-x2-batch2x64-rep1",
          "hybrid-pp2xdp2xtp2-1f1b-x8-batch4x8-rep1",
          "hybrid-pp2xdp2xtp2-1f1b-x8-batch32x8-rep1"));
  for (const PlannedRun& run : PlanStudy(config).runs) {
    EXPECT_THAT(run.GlobalBatch(), testing::AnyOf(64, 64 * run.world_size));
  }
}

TEST(PlanStudy, EveryLayoutIsRunAtItsWorldSize) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 1;
  config.trainers = {"hybrid"};
  config.schedules = {"1f1b", "interleaved_1f1b"};
  config.world_sizes = {2, 4};
  config.model = "mlp";  // 3 layers
  config.layouts = {{.cp = 2}, {.pp = 2, .tp = 2}, {.dp = 2, .tp = 2}};
  EXPECT_THAT(Stems(config),
              UnorderedElementsAre("hybrid-cp2-x2-batch1x64-rep1",
                                   "hybrid-pp2xtp2-1f1b-x4-batch4x16-rep1",
                                   "hybrid-dp2xtp2-x4-batch1x32-rep1"));
  EXPECT_THAT(PlanStudy(config).not_run,
              ElementsAre("hybrid pp2xtp2 interleaved_1f1b x4: the model would "
                          "be cut into 4 stages, and mlp has 3 layers"));
}

TEST(PlanStudy, LayoutsAreRunByTheirTrainers) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 1;
  config.model = "gpt";
  config.world_sizes = {1, 2, 4};
  config.scalings = config.pipeline_scalings = {Scaling::kWeak};
  config.schedules = {"1f1b"};
  config.trainers = {"single",          "ddp",      "fsdp",
                     "tensor_parallel", "pipeline", "hybrid"};
  config.zero_stages = {2};
  config.layouts = {
      {.dp = 4}, {.zero = 2}, {.tp = 2}, {.pp = 2}, {.pp = 2, .tp = 2}};
  EXPECT_THAT(
      Stems(config),
      UnorderedElementsAre(
          "single-x1-batch64-rep1", "ddp-x4-batch64-rep1",
          "fsdp-zero2-x1-batch64-rep1", "fsdp-zero2-x2-batch64-rep1",
          "fsdp-zero2-x4-batch64-rep1", "tensor_parallel-x2-batch128-rep1",
          "pipeline-1f1b-x2-batch8x16-rep1",
          "hybrid-pp2xtp2-1f1b-x4-batch16x16-rep1"));
}

TEST(PlanStudy, MoreStagesThanLayersAreNotRun) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 2;
  config.trainers = {"model_parallel", "pipeline"};
  config.schedules = {"1f1b", "interleaved_1f1b"};
  config.pipeline_scalings = {Scaling::kStrong, Scaling::kWeak};
  config.world_sizes = {4};
  config.model = "simple_cnn";
  const StudyPlan plan = PlanStudy(config);
  EXPECT_EQ(plan.runs.size(), 8u);
  EXPECT_THAT(
      plan.not_run,
      ElementsAre("pipeline interleaved_1f1b x4: the model would be cut into 8 "
                  "stages, and simple_cnn has 4 layers"));
  config.model = "mp_mlp";
  EXPECT_THAT(PlanStudy(config).runs, IsEmpty());
  EXPECT_THAT(PlanStudy(config).not_run,
              Contains("model_parallel x4: the model would be cut into 4 "
                       "stages, and mp_mlp has 3 layers"));
  config.model = "gpt";  // the trainers will reject it
  EXPECT_THAT(PlanStudy(config).not_run, IsEmpty());
}

TEST(PlannedRun, NamesSayHowTheBatchIsDivided) {
  EXPECT_EQ((PlannedRun{"ddp", 2, 32}.Name()), "ddp x2, batch 32 per rank");
  EXPECT_EQ((PlannedRun{"model_parallel", 2, 64}.Name()),
            "model_parallel x2, batch 64");
  EXPECT_EQ((PlannedRun{"pipeline", 2, 16, 1, "1f1b", 4}.Name()),
            "pipeline 1f1b x2, 4 micro-batches of 16");
  EXPECT_EQ((PlannedRun{"ddp", 2, 32, 1, "", 1, true}.Name()),
            "ddp x2, batch 32 per rank, without communication");
  EXPECT_EQ((PlannedRun{"comm_bench", 2, 0}.Name()), "comm_bench x2");
}

TEST(PlanStudy, OneWayOfScaling) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 1;
  config.trainers = {"ddp"};
  config.world_sizes = {2, 4};
  config.scalings = {Scaling::kStrong};
  EXPECT_THAT(Stems(config), UnorderedElementsAre("ddp-x2-batch32-rep1",
                                                  "ddp-x4-batch16-rep1"));
}

TEST(PlanStudy, EveryRepetitionOnceInAnOrderOfTheSeed) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 7;
  const std::vector<std::string> stems = Stems(config);
  EXPECT_EQ(stems.size(), 63u);
  EXPECT_EQ(std::set<std::string>(stems.begin(), stems.end()).size(), 63u);
  EXPECT_EQ(Stems(config), stems);
  config.seed = 1;
  EXPECT_NE(Stems(config), stems);
}

TEST(PlanStudy, RepetitionsAreMixed) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 10;
  std::vector<std::string> first_ten;
  for (const PlannedRun& run : PlanStudy(config).runs) {
    if (first_ten.size() < 10) first_ten.push_back(run.Name());
  }
  EXPECT_THAT(first_ten, Not(Each(first_ten[0])));
}

// Returns the cells that WithoutAuxiliaries lacks, with their repetitions.
std::vector<std::string> Auxiliaries(StudyConfig config) {
  std::set<std::string> main;
  StudyConfig without = config;
  without.ablations = 0;
  without.comm_bench = false;
  for (const auto& [run, repetitions] : PlanStudy(without).cells) {
    main.insert(run.CellStem());
  }
  std::vector<std::string> more;
  for (const auto& [run, repetitions] : PlanStudy(config).cells) {
    if (main.count(run.CellStem()) > 0) continue;
    more.push_back(run.CellStem() + " " + std::to_string(repetitions));
  }
  return more;
}

TEST(PlanStudy, AuxiliaryCellsOfTheDefaultStudy) {
  EXPECT_THAT(Auxiliaries(StudyConfig()),
              UnorderedElementsAre(
                  "single-x1-batch32 3",  // ddp x2, strong
                  "single-x1-batch16 3",  // a micro-batch
                  "ddp-x2-batch32-nocomm 3", "ddp-x2-batch64-nocomm 3",
                  "model_parallel-x2-batch64-nocomm 3",
                  "pipeline-1f1b-x2-batch4x16-nocomm 3", "comm_bench-x2 3"));
}

TEST(PlanStudy, AnAuxiliaryCellThatIsComparedTooIsPlannedOnce) {
  StudyConfig config;
  config.world_sizes = {1, 2, 4};
  config.trainers = {"single", "ddp"};
  config.scalings = {Scaling::kWeak};
  // single with batch 64 is already the base case.
  EXPECT_THAT(
      Auxiliaries(config),
      UnorderedElementsAre("ddp-x2-batch64-nocomm 3", "ddp-x4-batch64-nocomm 3",
                           "comm_bench-x2 3", "comm_bench-x4 3"));
  const std::vector<std::string> stems = Stems(config);
  EXPECT_EQ(std::set<std::string>(stems.begin(), stems.end()).size(),
            stems.size());
  EXPECT_THAT(stems, Contains("single-x1-batch64-rep5"));
  EXPECT_THAT(stems,
              IsSupersetOf({"comm_bench-x4-rep1", "comm_bench-x4-rep3"}));
}

TEST(PlanStudy, WithoutSingleTheBaseCaseIsTheTrainerOnOneRank) {
  StudyConfig config;
  config.trainers = {"ddp"};
  config.comm_bench = false;
  EXPECT_THAT(
      Auxiliaries(config),
      UnorderedElementsAre("ddp-x1-batch32 3", "ddp-x2-batch32-nocomm 3",
                           "ddp-x2-batch64-nocomm 3"));
}

TEST(PlanStudy, AblationsOfTheSchedulesAskedFor) {
  StudyConfig config;
  config.trainers = {"pipeline"};
  config.comm_bench = false;
  config.ablations = 7;  // more than repetitions
  config.ablation_schedules = {"gpipe", "zbv"};
  EXPECT_THAT(Auxiliaries(config),
              ElementsAre("pipeline-gpipe-x2-batch4x16-nocomm 7"));
  EXPECT_THAT(Stems(config),
              Contains("pipeline-gpipe-x2-batch4x16-nocomm-rep7"));
  config.ablation_schedules = {};
  EXPECT_THAT(Auxiliaries(config), IsEmpty());
}

TEST(PlanStudy, RanksThatDivideLayersAlwaysCommunicate) {
  StudyConfig config;
  config.trainers = {"single", "tensor_parallel", "hybrid"};
  config.comm_bench = false;
  config.world_sizes = {4};
  config.schedules = {"1f1b"};
  EXPECT_THAT(Auxiliaries(config), ElementsAre("single-x1-batch16 3"));
}

TEST(PlanStudy, OneRankNeedsNoAuxiliaries) {
  StudyConfig config;
  config.world_sizes = {1};
  EXPECT_THAT(Auxiliaries(config), IsEmpty());
}

TEST(PlanStudy, CellsWhoseBatchFollowsFromTheMemory) {
  StudyConfig config = WithoutAuxiliaries();
  config.repetitions = 1;
  config.trainers = {"single", "ddp", "pipeline"};
  config.schedules = {"1f1b"};
  config.scalings = config.pipeline_scalings = {Scaling::kFixedMemory};
  std::vector<PlannedRun> searched = PlanStudy(config).searched;
  std::vector<std::string> names;
  for (PlannedRun& run : searched) {
    names.push_back(run.trainer + " x" + std::to_string(run.world_size));
    run.batch_size = 8 * static_cast<int64_t>(names.size());
  }
  EXPECT_THAT(names,
              ElementsAre("single x1", "ddp x1", "ddp x2", "pipeline x2"));
  EXPECT_THAT(Stems(config), IsEmpty());
  std::vector<std::string> stems;
  for (const PlannedRun& run : PlanStudy(config, searched).runs) {
    stems.push_back(run.FileStem());
  }
  EXPECT_THAT(stems,
              UnorderedElementsAre("single-x1-batch8-rep1",
                                   "ddp-x1-batch16-rep1", "ddp-x2-batch24-rep1",
                                   "pipeline-1f1b-x2-batch4x32-rep1"));
}

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
  for (const char* expected : {"--record=/out/a.jsonl", "--batch_size=32",
                               "--nproc=2", "--max_steps=60", "--threads=4",
                               "--seed=0", "--memory=true", "--lr=0.01",
                               // 64 examples on each of 2 ranks in 60 steps.
                               "--train_size=7680", "--epochs=1"}) {
    EXPECT_THAT(arguments, Contains(expected));
  }
  EXPECT_THAT(RunArguments(config, {"single", 1, 64, 1}, "/out/a.jsonl"),
              Each(Not(StartsWith("--nproc"))));
}

// Returns the runs that time the layers of their model.
std::vector<std::string> TimedStems(
    const StudyConfig& config,
    const std::vector<PlannedRun>& fixed_memory = {}) {
  std::vector<std::string> stems;
  for (const PlannedRun& run : PlanStudy(config, fixed_memory).runs) {
    for (const std::string& flag : RunArguments(config, run, "r")) {
      if (flag == "--profile=true") stems.push_back(run.FileStem());
    }
  }
  return stems;
}

TEST(RunArguments, LayersAreTimedOnceAndOfTheBaseCase) {
  StudyConfig config;  // includes single at batches of 16, 32 and 64
  EXPECT_THAT(TimedStems(config), ElementsAre("single-x1-batch64-rep1"));
  config.trainers = {"ddp"};
  EXPECT_THAT(TimedStems(config), IsEmpty());
}

TEST(RunArguments, LayersOfASearchedBaseCaseAreTimedWhereThereIsNoOther) {
  StudyConfig config;
  config.trainers = {"single", "ddp"};
  config.world_sizes = {2};
  config.scalings = config.pipeline_scalings = {Scaling::kFixedMemory};
  std::vector<PlannedRun> found = PlanStudy(config).searched;
  ASSERT_EQ(found.size(), 2u);
  found[0].batch_size = 400;  // ddp's; single runs with 64 and with 400
  EXPECT_THAT(TimedStems(config, found),
              ElementsAre("single-x1-batch400-rep1"));
  config.scalings = {Scaling::kStrong, Scaling::kFixedMemory};
  found = PlanStudy(config).searched;
  found[0].batch_size = 400;
  EXPECT_THAT(TimedStems(config, found), ElementsAre("single-x1-batch64-rep1"));
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

TEST(RunArguments, SayHowTheRanksAreLaidOut) {
  const StudyConfig config;
  EXPECT_THAT(RunArguments(config, {"tensor_parallel", 2, 64}, "r"),
              AllOf(Contains("--nproc=2"), Each(Not(StartsWith("--tp"))),
                    Contains("--traffic_steps=5"),
                    Each(Not(StartsWith("--microbatches")))));
  PlannedRun run = {"hybrid", 8, 8, 1, "1f1b", 4};
  run.mesh = {.pp = 2, .dp = 2, .tp = 2};
  const auto arguments = RunArguments(config, run, "r");
  for (const char* expected :
       {"--nproc=8", "--pp=2", "--dp=2", "--cp=1", "--tp=2", "--schedule=1f1b",
        "--chunks=1", "--microbatches=4", "--batch_size=8",
        "--traffic_steps=5"}) {
    EXPECT_THAT(arguments, Contains(expected));
  }
  EXPECT_EQ(run.Name(), "hybrid pp2xdp2xtp2 1f1b x8, 4 micro-batches of 8");
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
                    Contains("--max_seconds=0.1"), Contains("--backend=gloo"),
                    Not(Contains("--model=vit"))));
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
