// Tests invalid files and launcher environments: each run must end soon, with a
// non-zero code and a message that states the error and the remedy.
// bad_command_lines.txt lists invalid flags.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct BadInput {
  std::string name;
  std::string trainer;
  std::vector<std::string> flags;
  std::string message;  // must be in stderr
  std::vector<std::string> environment = {};
  int code = 2;  // exit code; bad usage
};

std::vector<BadInput> BadEnvironments() {
  return {
      {"RankAboveWorld",
       "ddp",
       {},
       "RANK=2 ",
       {"RANK=2", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
        "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"}},
      {"RankIsNoNumber",
       "ddp",
       {},
       "RANK='first' is not a number",
       {"RANK=first", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
        "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"}},
      {"NoMasterAddr",
       "ddp",
       {},
       "MASTER_ADDR",
       {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
        "MASTER_PORT=29500"}},
      {"PortIsNoNumber",
       "ddp",
       {},
       "MASTER_PORT='http'",
       {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
        "MASTER_ADDR=127.0.0.1", "MASTER_PORT=http"}},
      {"MasterAddrOfAnotherMachine",
       "ddp",
       {"--rendezvous_timeout=1s"},
       "MASTER_ADDR 192.0.2.1 is not an address of this machine",
       {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
        "MASTER_ADDR=192.0.2.1", "MASTER_PORT=29518"},
       /*code=*/1},
      {"WorldSizeMissing",
       "ddp",
       {},
       "WORLD_SIZE",
       {"RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"}},
      {"SingleInsideALauncher",
       "single",
       {},
       "single is one process; use the trainer ddp",
       {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
        "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"}},
  };
}

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

void ExpectRefused(const Finished& run, const std::string& message) {
  EXPECT_GT(run.code, 0);
  EXPECT_LT(run.code, 128) << "ended by a signal";
  EXPECT_THAT(run.err, HasSubstr(message));
  EXPECT_THAT(run.err, Not(HasSubstr("frame #")));
  EXPECT_THAT(run.err, Not(HasSubstr("terminate called")));
}

class BadInputTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, IsRefusedWithAReason) {
  const BadInput& input = GetParam();
  const Finished run =
      RunTrainer(input.trainer, input.flags, input.environment);
  ExpectRefused(run, input.message);
  EXPECT_EQ(run.code, input.code);
}

std::string NameOf(const ::testing::TestParamInfo<BadInput>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Environment, BadInputTest,
                         ::testing::ValuesIn(BadEnvironments()), NameOf);

TEST(BadFilesTest, CifarFileOfTheWrongSizeIsNamed) {
  const std::string dir = TemporaryPath("short_cifar");
  std::filesystem::create_directories(dir);
  for (const char* name :
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    std::ofstream(dir + "/" + name) << "too short";
  }
  ExpectRefused(
      RunTrainer("single", {"--dataset=cifar10", "--data_dir=" + dir}),
      "data_batch_1.bin");
}

TEST(BadFilesTest, ACheckpointFolderThatIsAFileIsNamedBeforeTheTraining) {
  const std::string file = TemporaryPath("file");
  std::ofstream(file) << "not a folder";
  const Finished run =
      RunTrainer("single", {"--max_steps=2", "--checkpoint_dir=" + file});
  ExpectRefused(run, "--checkpoint_dir=" + file + ": is not a folder");
  EXPECT_THAT(run.out, Not(HasSubstr("first step done")));
}

TEST(FakeBackendTest, OneProcessTrainsAsRankZeroOfMany) {
  const Finished run = RunTrainer(
      "ddp", {"--backend=fake", "--fake_world_size=8", "--fake_alpha_us=100",
              "--eval=false", "--max_steps=3", "--train_size=1024"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("rank 0 of 8: cpu"));
}

TEST(FakeBackendTest, SimulatedRanksDivideLayersAndTokens) {
  const Finished run = RunTrainer(
      "tensor_parallel",
      {"--backend=fake", "--fake_world_size=4", "--eval=false", "--model=gpt",
       "--sequence_parallel", "--tp_overlap=2", "--sequence_length=16",
       "--batch_size=2", "--max_steps=2", "--train_size=16"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("rank 0 of 4: cpu"));
}

// The test set is one batch of 12 GB of pixels, the training set is small.
TEST(BadFilesTest, AnEvaluationThatFailsIsCalledThat) {
  const std::string command =
      "ulimit -v 12000000 && exec " + Runfile("trainers/single") +
      " --train_size=64 --test_size=4000000 --batch_size=4000000 --max_steps=1";
  TestProcess run({"/bin/sh", "-c", command});
  ExpectRefused(Finish(run),
                "the evaluation after epoch 1 failed: loading data ran out of "
                "memory");
}

TEST(BadFilesTest, MemoryThatIsNotThereNamesTheFlagsThatHelp) {
  // One batch of 12 GB of pixels in 12 GB of address space.
  const std::string command =
      "ulimit -v 12000000 && exec " + Runfile("trainers/single") +
      " --train_size=4000000 --batch_size=4000000 --eval=false --max_steps=1";
  TestProcess run({"/bin/sh", "-c", command});
  ExpectRefused(Finish(run), "ran out of memory");
  EXPECT_THAT(run.Stderr(), HasSubstr("--batch_size"));
}

}  // namespace
}  // namespace rankwise
