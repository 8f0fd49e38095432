// The binary, as a person runs it.

#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Finished {
  int code = 0;
  std::string text;  // of both outputs
};

Finished RunPlan(const std::string& flags) {
  const std::string command =
      absl::StrCat("analysis/plan/plan ", flags, " 2>&1");
  Finished finished;
  FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t read = std::fread(buffer, 1, sizeof(buffer), pipe))
    finished.text.append(buffer, read);
  finished.code = WEXITSTATUS(::pclose(pipe));
  return finished;
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Plan, RanksLayoutsAndDrawsTheirScaling) {
  const std::string json = testing::TempDir() + "/plan.json";
  const Finished plan =
      RunPlan(absl::StrCat("--model=gpt3-175b --cluster=a100-selene "
                           "--world_sizes=64,512 --best=3 --json=",
                           json));
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.text,
              AllOf(HasSubstr("175 billion parameters"),
                    HasSubstr("\n64 ranks, 64 examples a step: "),
                    HasSubstr("\n512 ranks, 512 examples a step: "),
                    HasSubstr("is the fastest"), HasSubstr("\nIts MFU: "),
                    HasSubstr("Tokens per second and rank of the best layout"),
                    HasSubstr("//trainers:hybrid -- --nproc=512 ")));
  const auto written = nlohmann::json::parse(ContentOf(json));
  ASSERT_EQ(written["world_sizes"].size(), 2u);
  for (const auto& size : written["world_sizes"]) {
    ASSERT_EQ(size["best"].size(), 3u);
    for (const auto& layout : size["best"]) {
      EXPECT_EQ(layout["pp"].get<int>() * layout["dp"].get<int>() *
                    layout["cp"].get<int>() * layout["tp"].get<int>(),
                size["ranks"].get<int>());
      EXPECT_LT(layout["step_interval"][0], layout["step_seconds"]);
      EXPECT_LT(layout["mfu_interval"][0], layout["mfu"]);
      EXPECT_GT(layout["mfu_interval"][1], layout["mfu"]);
      for (const auto& [part, interval] : layout["intervals"].items()) {
        EXPECT_LE(interval[0], layout["seconds"][part]) << part;
        EXPECT_GE(interval[1], layout["seconds"][part]) << part;
      }
      EXPECT_EQ(layout["intervals"].size(), 4u);
      double bytes = 0;
      for (const auto& part : layout["memory"]) bytes += part.get<double>();
      EXPECT_LE(bytes, 80e9);
    }
  }
}

// 10,000 ranks, and sizes that are no powers of two.
TEST(Plan, TakesManyRanks) {
  const Finished plan = RunPlan(
      "--model=gpt3-175b --cluster=h100-superpod "
      "--world_sizes=96,1000,10000 --best=1");
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_THAT(plan.text, HasSubstr("10000 ranks, 10000 examples a step"));
}

TEST(Plan, SaysWhereNothingFits) {
  const Finished none =
      RunPlan("--model=megatron-1t --cluster=a100-selene --world_sizes=8");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.text,
              HasSubstr("no layout of 8 ranks fits into 80.0 GB per rank"));
  const Finished some = RunPlan(
      "--model=megatron-1t --cluster=a100-selene "
      "--world_sizes=8,1024 --best=1");
  EXPECT_EQ(some.code, 0);
  EXPECT_THAT(some.text, AllOf(HasSubstr("no layout of 8 ranks fits"),
                               HasSubstr("1024 ranks, 1024 examples")));
}

TEST(Plan, PrintsPublishedTables) {
  const Finished plan = RunPlan("--validate=narayanan2021");
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.text, AllOf(HasSubstr("Narayanan et al. 2021, table 1"),
                               HasSubstr("mean error")));
}

TEST(Plan, RefusesWhatItCannotUse) {
  const std::string nano = "--model=nano --cluster=a100-selene ";
  const std::pair<std::string, const char*> lines[] = {
      {"", "give --model"},
      {"--model=gpt5", "--model=gpt5: not known"},
      {"--model=nano", "give either --cluster"},
      {"--model=nano --cluster=a100-selene --records=x", "give either"},
      {"--model=nano --cluster=dgx", "--cluster=dgx: neither a file nor"},
      {"--layers=4 --width=10", "--heads=0: must be from 1"},
      {"--layers=-1 --width=8 --heads=1", "--layers=-1: must be from 1"},
      {"--model=nano --width=130", "--width=130: must be a multiple of"},
      {nano + "--world_sizes=0", "--world_sizes=0: expected numbers from 1"},
      {nano + "--world_sizes=8,x", "--world_sizes=8,x: expected numbers"},
      {nano + "--world_sizes=", "--world_sizes=: expected numbers"},
      {nano + "--zero=4", "--zero=4: expected numbers from 0 to 3"},
      {nano + "--precision=fp64", "--precision=fp64: must be fp32 or bf16"},
      {nano + "--schedules=dualpipev", "dualpipev is none that is planned"},
      {nano + "--schedules=", "is none that is planned"},
      {nano + "--best=0", "--best=0: must be from 1"},
      {nano + "--batch_per_rank=0", "--batch_per_rank=0: must be from 1"},
      {nano + "--global_batch=-4", "--global_batch=-4: must be from 0"},
      {nano + "--devices_per_node=-1", "--devices_per_node=-1: must be"},
      {nano + "--memory=much", "--memory=much"},
      {"--score", "--score: give --records"},
      {"--score --records=none --fit_up_to=-1", "--fit_up_to=-1: must be"},
      {"--validate=none", "korthikanti2022 or narayanan2021"},
      {nano + "more", "more"}};
  for (const auto& [flags, message] : lines) {
    const Finished plan = RunPlan(flags);
    EXPECT_NE(plan.code, 0) << flags;
    EXPECT_LT(plan.code, 3) << flags << plan.text;
    EXPECT_THAT(plan.text, HasSubstr(message)) << flags;
  }
}

}  // namespace
}  // namespace rankwise
