#include "analysis/study/study_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StudyConfig OnCores(int64_t cores) {
  StudyConfig config;
  config.cores = cores;
  return config;
}

TEST(ParseWorldSizes, RefusesInALineThatCanBePrinted) {
  EXPECT_THAT(std::string(ParseWorldSizes("2,\t\x1b").status().message()),
              HasSubstr("--world_sizes=2,??: \"??\" is not a world size"));
}

TEST(ParseWorldSizes, AreSorted) {
  EXPECT_THAT(*ParseWorldSizes("4,1,2"), ElementsAre(1, 2, 4));
  EXPECT_THAT(*ParseWorldSizes("3"), ElementsAre(3));
}

TEST(ParseWorldSizes, RefusesWhatIsNoWorldSize) {
  for (const char* text : {"", "0", "-1", "2,x", "1,", ",", "1.5", "1 2",
                           "99999", "9999999999999999999999"}) {
    const auto sizes = ParseWorldSizes(text);
    ASSERT_FALSE(sizes.ok()) << text;
    EXPECT_THAT(std::string(sizes.status().message()),
                HasSubstr("is not a world size; expected whole numbers"));
    EXPECT_THAT(std::string(sizes.status().message()),
                HasSubstr(std::string("--world_sizes=") + text));
  }
  EXPECT_EQ(ParseWorldSizes("2,2").status().message(),
            "--world_sizes=2,2: 2 occurs twice");
}

TEST(ParseScalings, KnowsThree) {
  EXPECT_THAT(*ParseScalings("scaling", "weak,strong"),
              ElementsAre(Scaling::kWeak, Scaling::kStrong));
  EXPECT_THAT(*ParseScalings("scaling", "fixed_memory"),
              ElementsAre(Scaling::kFixedMemory));
  EXPECT_EQ(ParseScalings("scaling", "Strong").status().message(),
            "--scaling=Strong: \"Strong\" is unknown; expected some of "
            "strong,weak,fixed_memory");
}

TEST(MemoryText, RoundsToWhatIsRead) {
  EXPECT_EQ(MemoryText(312400000), "312 MB");
  EXPECT_EQ(MemoryText(1204000000), "1.20 GB");
}

TEST(ParseTrainers, KnowsEight) {
  EXPECT_THAT(*ParseTrainers("pipeline,ddp"), ElementsAre("pipeline", "ddp"));
  EXPECT_EQ(ParseTrainers("single,zero").status().message(),
            "--trainers=single,zero: \"zero\" is unknown; expected some of "
            "single,ddp,data_parallel,fsdp,model_parallel,pipeline,"
            "tensor_parallel,hybrid");
}

TEST(ParseSchedules, KnowsTheNamesOfThePipeline) {
  EXPECT_THAT(*ParseSchedules("schedules", "zbv,1f1b"),
              ElementsAre("zbv", "1f1b"));
  EXPECT_EQ(ParseSchedules("schedules", "1f1b,1F1B").status().message(),
            "--schedules=1f1b,1F1B: \"1F1B\" is unknown; expected some of "
            "naive,gpipe,1f1b,interleaved_1f1b,zero_bubble_h1,zero_bubble_h2,"
            "zbv,dualpipev,zero_bubble_auto");
  EXPECT_EQ(ParseSchedules("schedules", "zbv,zbv").status().message(),
            "--schedules=zbv,zbv: zbv occurs twice");
}

TEST(ParseLayouts, AreAxesWithTheirSizes) {
  EXPECT_THAT(*ParseLayouts("cp2xpp4"), ElementsAre(Layout{.pp = 4, .cp = 2}));
  for (const char* text :
       {"ep2", "tp", "tp1", "2", "tp2xtp2", "tp2x", "tp2 x"}) {
    EXPECT_THAT(
        std::string(ParseLayouts(text).status().message()),
        HasSubstr(std::string("--layouts: \"") + text + "\" is no layout"));
  }
}

TEST(ParseLayouts, EachHasTheTrainerThatCarriesIt) {
  const auto layouts = ParseLayouts("ddp,zero3,dp4,tp2,pp2,cp2,tp2xpp2");
  ASSERT_TRUE(layouts.ok()) << layouts.status();
  std::vector<std::string> trainers;
  for (const Layout& layout : *layouts) {
    trainers.push_back(TrainerOf(layout));
  }
  EXPECT_THAT(trainers, ElementsAre("ddp", "fsdp", "ddp", "tensor_parallel",
                                    "pipeline", "hybrid", "hybrid"));
  EXPECT_EQ((*layouts)[1].zero, 3);
  EXPECT_TRUE(IsAt((*layouts)[0], 8));
  EXPECT_TRUE(IsAt((*layouts)[2], 4));
  EXPECT_FALSE(IsAt((*layouts)[2], 2));
}

// Returns the meshes of more than one rank, by name.
std::vector<std::string> MeshesOfAuto(const std::string& model,
                                      int64_t world_size) {
  StudyConfig config;
  config.model = model;
  config.world_sizes = {1, world_size};
  std::vector<std::string> meshes;
  for (const Layout& layout : AllLayouts(config)) {
    if (layout.ranks() > 1) meshes.push_back(layout.AxesName());
  }
  return meshes;
}

TEST(AllLayouts, AreThoseThatTheModelAllows) {
  using ::testing::UnorderedElementsAre;
  EXPECT_THAT(MeshesOfAuto("gpt", 4),
              UnorderedElementsAre("tp4", "cp4", "pp4", "cp2xtp2", "dp2xtp2",
                                   "pp2xtp2", "dp2xcp2", "pp2xcp2", "pp2xdp2"));
  EXPECT_THAT(
      MeshesOfAuto("gpt", 8),  // 4 heads and 4 blocks
      UnorderedElementsAre("cp8", "cp2xtp4", "cp4xtp2", "dp2xtp4", "dp4xtp2",
                           "dp2xcp4", "dp4xcp2", "pp2xtp4", "pp4xtp2",
                           "pp2xcp4", "pp4xcp2", "pp2xdp4", "pp4xdp2"));
  EXPECT_THAT(MeshesOfAuto("mlp", 4),  // 3 layers, and no sequence
              UnorderedElementsAre("tp4", "dp2xtp2", "pp2xtp2", "pp2xdp2"));
  EXPECT_THAT(MeshesOfAuto("simple_cnn", 2), UnorderedElementsAre("pp2"));
}

TEST(DefaultLayout, FillsTpThenPpThenDp) {
  EXPECT_EQ(DefaultLayout(1).AxesName(), "");
  EXPECT_EQ(DefaultLayout(2).AxesName(), "tp2");
  EXPECT_EQ(DefaultLayout(3).AxesName(), "dp3");
  EXPECT_EQ(DefaultLayout(4).AxesName(), "pp2xtp2");
  EXPECT_EQ(DefaultLayout(6).AxesName(), "dp3xtp2");
  EXPECT_EQ(DefaultLayout(16).AxesName(), "pp2xdp4xtp2");
}

TEST(LayersOfModel, AreKnownWhereNoOtherFlagSaysThem) {
  EXPECT_EQ(LayersOfModel("simple_cnn"), 4);
  EXPECT_EQ(LayersOfModel("mp_mlp"), 3);
  EXPECT_EQ(LayersOfModel("linear"), 1);
  EXPECT_EQ(LayersOfModel("gpt"), 0);
}

TEST(ThreadsPerRank, SharesTheCoresOfTheLargestWorldSize) {
  EXPECT_EQ(ThreadsPerRank(OnCores(2)), 1);
  EXPECT_EQ(ThreadsPerRank(OnCores(16)), 8);
  EXPECT_EQ(ThreadsPerRank(OnCores(1)), 1);
  StudyConfig config = OnCores(16);
  config.threads = 3;
  EXPECT_EQ(ThreadsPerRank(config), 3);
}

TEST(CheckStudyConfig, TheDefaultsAreGoodOnTwoCores) {
  EXPECT_TRUE(CheckStudyConfig(OnCores(2)).ok());
}

TEST(CheckStudyConfig, EveryRefusalNamesItsFlag) {
  struct Case {
    std::function<void(StudyConfig*)> change;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](StudyConfig* c) { c->repetitions = 0; }, "--repetitions=0: expected"},
      {[](StudyConfig* c) { c->repetitions = 1001; },
       "--repetitions=1001: expected at most 1000"},
      {[](StudyConfig* c) { c->max_steps = 1000001; },
       "--max_steps=1000001: expected at most 1000000"},
      {[](StudyConfig* c) { c->batch_size = 0; }, "--batch_size=0: expected"},
      {[](StudyConfig* c) { c->warmup_steps = -1; },
       "--warmup_steps=-1: expected"},
      {[](StudyConfig* c) { c->max_steps = 14; },
       "--max_steps=14: expected 15 or more, 5 to measure after "
       "--warmup_steps=10"},
      {[](StudyConfig* c) { c->train_size = -5; }, "--train_size=-5: expected"},
      {[](StudyConfig* c) { c->threads = -1; }, "--threads=-1: expected"},
      {[](StudyConfig* c) { c->threads = 2; },
       "--world_sizes: 2 ranks of 2 threads need 4 cores, and this process "
       "may use 2: leave"},
      {[](StudyConfig* c) {
         c->world_sizes = {1, 4};
       },
       "4 ranks of 1 thread need 4 cores, and this process may use 2: leave "
       "that size out, or pass --oversubscribe"},
      {[](StudyConfig* c) { c->batch_size = 63; },
       "--batch_size=63: strong scaling divides it among the ranks, and it "
       "does not divide by the world size 2"},
      {[](StudyConfig* c) { c->micro_batches = 0; },
       "--microbatches=0: expected 1 or more"},
      {[](StudyConfig* c) { c->batch_size = 66; },
       "--batch_size=66: the pipeline divides it into --microbatches=4, and it "
       "does not divide"},
      {[](StudyConfig* c) {
         c->trainers = {"model_parallel", "pipeline"};
         c->world_sizes = {1};
       },
       "--world_sizes=1: model_parallel and pipeline cut the model"},
      {[](StudyConfig* c) {
         c->trainers = {"single", "tensor_parallel"};
         c->model = "simple_cnn";
       },
       "--trainers: tensor_parallel cuts layers, and --model=simple_cnn has "
       "none that can be cut"},
      {[](StudyConfig* c) {
         c->trainers = {"hybrid"};
         c->layouts = {{.pp = 2, .tp = 2}};
       },
       "--layouts: pp2xtp2 has 4 ranks, which is not one of "
       "--world_sizes"},
      {[](StudyConfig* c) {
         c->trainers = {"hybrid"};
         c->world_sizes = {8};
         c->threads = 1;
         c->oversubscribe = true;
         c->batch_size = 60;
       },
       "--batch_size=60: hybrid pp2xdp2xtp2 divides it into 2 x 4 "
       "micro-batches"},
      {[](StudyConfig* c) { c->ablations = -1; },
       "--ablations=-1: expected 1 or more, or 0 for none"},
      {[](StudyConfig* c) { c->scalings = {Scaling::kFixedMemory}; },
       "--memory_limit: --scaling=fixed_memory gives every rank"},
      {[](StudyConfig* c) { c->memory_limit_bytes = 1; },
       "--memory_limit: nothing depends on it"},
      {[](StudyConfig* c) { c->trainer_flags = {"lr=1"}; },
       "--trainer_flags: \"lr=1\" is no flag"},
  };
  for (const Case& c : cases) {
    StudyConfig config = OnCores(2);
    c.change(&config);
    EXPECT_THAT(std::string(CheckStudyConfig(config).message()),
                HasSubstr(c.message));
  }
}

TEST(CheckStudyConfig, OversubscribingIsPossibleWhenAskedFor) {
  StudyConfig config = OnCores(2);
  config.world_sizes = {1, 4};
  config.oversubscribe = true;
  EXPECT_TRUE(CheckStudyConfig(config).ok());
}

TEST(CheckStudyConfig, WhatNoTrainerDividesNeedNotDivide) {
  StudyConfig config = OnCores(2);
  config.batch_size = 63;
  config.trainers = {"single", "model_parallel"};
  EXPECT_TRUE(CheckStudyConfig(config).ok());
}

TEST(CheckStudyConfig, WeakScalingNeedsNoDivision) {
  StudyConfig config = OnCores(2);
  config.batch_size = 63;
  config.micro_batches = 3;
  config.scalings = {Scaling::kWeak};
  EXPECT_TRUE(CheckStudyConfig(config).ok());
}

}  // namespace
}  // namespace rankwise
