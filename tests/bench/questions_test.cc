// Tests the other binaries of comm_bench, each for another question.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/comm/test_process.h"
#include "records/record_writer.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Runs a target of //comm_bench. The tests check the format of the output, not
// times.
Finished RunBinary(const std::string& name, const Flags& flags) {
  TestProcess run(Joined({Runfile(absl::StrCat("comm_bench/", name)),
                          "--threads=1", "--iterations=3"},
                         flags));
  return Finish(run);
}

struct Example {
  const char* name;
  const char* binary;
  std::vector<std::string> flags;
  const char* output;
};

class QuestionTest : public ::testing::TestWithParam<Example> {};

TEST_P(QuestionTest, IsAnswered) {
  const Finished run = RunBinary(GetParam().binary, GetParam().flags);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, ContainsRegex(GetParam().output));
  EXPECT_THAT(run.err, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    All, QuestionTest,
    ::testing::ValuesIn(std::vector<Example>{
        {"Pairs", "pairs", {"--nproc=2"}, "[Ll]atency"},
        {"PairsOfSizes", "pairs", {"--nproc=2", "--sizes=16,4K"}, "[Ll]atency"},
        {"NewGroup", "new_group", {"--nproc=2"}, "new_group"},
        {"Ladder", "ladder", {"--nproc=2", "--sizes=4K"}, "reducer"},
        {"Overlap",
         "overlap",
         {"--nproc=2", "--sizes=64K", "--gemm_size=64"},
         "OSU"},
        {"OverlapAll",
         "overlap",
         {"--nproc=2", "--sizes=64", "--gemm_size=16", "--collectives=all"},
         "left out: .*ping_pong"},
        {"Units",
         "units",
         {"--nproc=2", "--units=64K,2x4K", "--compute_us=100,50,50",
          "--gemm_size=16"},
         "1 to 2 .*prefetch 1 "},
        {"OverlapOfRoundedSizes",
         "overlap",
         {"--nproc=2", "--sizes=3", "--gemm_size=16"},
         "# 3 bytes: measured as 4, rounded"},
        {"LadderOfRoundedSizes",
         "ladder",
         {"--nproc=2", "--sizes=3"},
         "# 3 bytes: measured as 4, rounded"},
        {"FakeStraggler",
         "pairs",
         {"--backend=fake", "--fake_world_size=4", "--fake_alpha_us=1000",
          "--fake_straggler_rank=2", "--fake_straggler_us=5000",
          "--fake_virtual_time"},
         "rank 2 stands out: its messages take 5000 us longer"},
    }),
    [](const auto& info) { return info.param.name; });

// Records four ranks, each of which all-reduces twice along tp and once along
// dp.
std::string HybridTraffic() {
  const std::string path = TemporaryPath("hybrid.jsonl");
  const auto writer = RecordWriter::Open(path).value();
  for (int64_t rank = 0; rank < 4; ++rank) {
    RunRecord run;
    run.run_id = "run";
    run.binary = "hybrid";
    run.backend = "gloo";
    run.rank = rank;
    run.world_size = 4;
    TrafficRecord traffic;
    traffic.rank = rank;
    const int64_t first = rank / 2 * 2;
    for (const std::vector<int64_t>& ranks :
         {std::vector<int64_t>{first, first + 1},
          {rank % 2, rank % 2 + 2},
          {first, first + 1}}) {
      RecordedTransfer& event = traffic.events.emplace_back();
      event.op = "all_reduce";
      event.dtype = "float32";
      event.count = 250;
      event.bytes = 1000;
      event.ranks = ranks;
      event.end_seconds = 0.001;
    }
    EXPECT_TRUE(writer->Write(run).ok());
    EXPECT_TRUE(writer->Write(traffic).ok());
  }
  return path;
}

TEST(ReplayTest, ReplaysTheTrafficOfAllAxesOrOfOne) {
  const std::string replay = absl::StrCat("--replay=", HybridTraffic());
  const Finished all = RunBinary("replay", {"--nproc=4", replay});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, ContainsRegex("\n +3 +3 +0.003 "));
  const Finished tp = RunBinary(
      "replay", {"--nproc=4", replay, "--mesh=dp:2,tp:2", "--axis=tp"});
  EXPECT_EQ(tp.code, 0) << tp.err;
  EXPECT_THAT(tp.out,
              HasSubstr("# replays only the communication of groups along tp"));
  EXPECT_THAT(tp.out, ContainsRegex("\n +3 +2 +0.002 "));
  const Finished none =
      RunBinary("replay", {"--nproc=4", replay, "--mesh=tp:4", "--axis=tp"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("no group along --axis communicated; those "
                                  "that did: {0,1} {0,2} {1,3} {2,3}"));
}

// The help must fit on two screens.
TEST(HelpTest, IsShortAndNoFailure) {
  for (const char* name : {"comm_bench", "ladder", "new_group", "overlap",
                           "pairs", "replay", "units"}) {
    TestProcess run({Runfile(absl::StrCat("comm_bench/", name)), "--help"});
    EXPECT_EQ(run.Wait(), 0) << name;
    const std::string help = run.Stdout();
    EXPECT_THAT(help, HasSubstr("--iterations")) << name;
    EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 90) << name;
  }
}

}  // namespace
}  // namespace rankwise
