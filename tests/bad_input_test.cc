// What a user can get wrong: each ends soon, with a non-zero code and a message
// that says what was wrong and what to do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/trainer_process.h"

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
  int code = 2;  // exit code: of bad usage
};

const char kMissing[] = "/nonexistent-folder/file";

std::vector<BadInput> BadFlags() {
  return {
      {"UnknownFlag",
       "single",
       {"--batchsize=3"},
       "Unknown command line flag 'batchsize'"},
      {"NotAFlag", "single", {"train"}, "\"train\" is not a flag"},
      {"NotANumber",
       "single",
       {"--epochs=many"},
       "Illegal value 'many' specified for flag 'epochs'"},
      {"Model",
       "single",
       {"--model=resnet"},
       "--model=resnet: no such model; known: simple_cnn, linear"},
      {"Dataset",
       "single",
       {"--dataset=imagenet"},
       "--dataset=imagenet: must be one of"},
      {"DatasetOfAnotherModel",
       "single",
       {"--model=linear", "--dataset=synthetic"},
       "try --dataset=linear"},
      {"BatchSizeZero",
       "single",
       {"--batch_size=0"},
       "--batch_size=0: must be between 1 and 1000000000"},
      {"BatchSizeNegative",
       "ddp",
       {"--batch_size=-4"},
       "--batch_size=-4: must be between 1 and 1000000000"},
      {"Epochs",
       "single",
       {"--epochs=0"},
       "--epochs=0: must be between 1 and 1000000000"},
      {"MaxSteps",
       "single",
       {"--max_steps=-1"},
       "--max_steps=-1: must be between 0 and 1000000000000"},
      {"TrainSize",
       "single",
       {"--train_size=0"},
       "--train_size=0: must be between 1 and 1000000000"},
      {"TestSize",
       "single",
       {"--test_size=0"},
       "--test_size=0: must be between 1 and 1000000000"},
      {"Accumulate",
       "single",
       {"--accumulate=0"},
       "--accumulate=0: must be between 1 and 1048576"},
      {"AccumulateBeyond64Bits",
       "single",
       {"--accumulate=9223372036854775807"},
       "--accumulate=9223372036854775807: must be between 1 and 1048576"},
      {"AccumulateTimesBatchBeyond64Bits",
       "single",
       {"--accumulate=4611686018427387904"},
       "--accumulate=4611686018427387904: must be between 1 and 1048576"},
      {"BatchSizeTimesRanksBeyond64Bits",
       "ddp",
       {"--batch_size=4611686018427387904", "--nproc=2"},
       "--batch_size=4611686018427387904: must be between 1 and 1000000000"},
      {"BatchSizeThatRoundsToNoBatch",
       "single",
       {"--batch_size=9223372036854775807"},
       "--batch_size=9223372036854775807: must be between 1 and 1000000000"},
      {"GlobalBatchBeyond64Bits",
       "ddp",
       {"--backend=fake", "--eval=false", "--fake_world_size=1048576",
        "--batch_size=1000000000", "--accumulate=1048576"},
       "--batch_size=1000000000: with 1048576 micro-batches a step and 1048576 "
       "data-parallel ranks a step has more than 9223372036854775807 examples"},
      {"EpochsBeyond64Bits",
       "single",
       {"--epochs=9223372036854775807"},
       "--epochs=9223372036854775807: must be between 1 and 1000000000"},
      {"WarmupSteps",
       "single",
       {"--warmup_steps=9223372036854775807"},
       "--warmup_steps=9223372036854775807: must be between 0 and "
       "1000000000000"},
      {"Optimizer",
       "single",
       {"--optimizer=lion"},
       "--optimizer=lion: must be one of adam, adamw, sgd"},
      {"LearningRate",
       "single",
       {"--lr=-0.1"},
       "--lr=-0.1: must be at least 0"},
      {"LearningRateNaN",
       "single",
       {"--lr=nan"},
       "--lr=nan: must be finite and at least 0"},
      {"LearningRateInfinite",
       "single",
       {"--lr=inf"},
       "--lr=inf: must be finite and at least 0"},
      {"MomentumOfAdam",
       "single",
       {"--momentum=0.9"},
       "--momentum=0.9: only for --optimizer=sgd"},
      {"Schedule",
       "single",
       {"--lr_schedule=step"},
       "--lr_schedule=step: must be one of constant, cosine"},
      {"Precision",
       "single",
       {"--precision=fp8"},
       "--precision=fp8: must be one of fp32, bf16, fp16"},
      {"Fp16OfACutModel",
       "pipeline",
       {"--precision=fp16"},
       "--precision=fp16: pipeline cuts the model"},
      {"GraphOfACutModel",
       "model_parallel",
       {"--cuda_graph"},
       "--cuda_graph: model_parallel cuts the model"},
      {"GraphOnACpu",
       "ddp",
       {"--cuda_graph", "--device=cpu", "--nproc=2"},
       "--cuda_graph: needs a GPU, and --device=cpu asks for none"},
      {"GraphWithoutGpu",
       "single",
       {"--cuda_graph"},
       "--cuda_graph: needs a GPU: ",
       {"CUDA_VISIBLE_DEVICES="}},
      {"Tf32WithoutGpu",
       "single",
       {"--tf32"},
       "--tf32: needs a GPU: ",
       {"CUDA_VISIBLE_DEVICES="}},
      {"PeakBelowZero",
       "single",
       {"--peak_tflops=-1"},
       "--peak_tflops=-1: must be at least 0"},
      {"Threads",
       "single",
       {"--threads=-2"},
       "--threads=-2: must be between 0 and 1024"},
      {"DataWorkers",
       "single",
       {"--data_workers=-1"},
       "--data_workers=-1: must be between 0 and 64"},
      {"LogEvery",
       "single",
       {"--log_every=0"},
       "--log_every=0: must be between 1 and 1000000000000"},
      {"Device",
       "single",
       {"--device=tpu"},
       "device='tpu' is unknown; use auto, cpu, cuda or cuda:N"},
      {"NoGpu",
       "single",
       {"--device=cuda"},
       "use device=cpu",
       {"CUDA_VISIBLE_DEVICES="}},
      {"Backend",
       "ddp",
       {"--backend=mpi2"},
       "--backend=mpi2: must be one of auto, gloo, shm, mpi, nccl, fake"},
      {"NcclWithoutGpu",
       "ddp",
       {"--backend=nccl"},
       "use backend=gloo",
       {"CUDA_VISIBLE_DEVICES="}},
      {"NcclOfSingleWithoutGpu",
       "single",
       {"--backend=nccl"},
       "use backend=gloo",
       {"CUDA_VISIBLE_DEVICES="}},
      {"LogFolderOfOneProcess",
       "ddp",
       {"--log_dir=" + TemporaryPath("logs")},
       "works with --nproc above 1"},
      {"FakeRanksThatEvaluate",
       "ddp",
       {"--backend=fake"},
       "--backend=fake: ranks that are only pretended cannot evaluate"},
      {"FakeOnSeveralProcesses",
       "ddp",
       {"--backend=fake", "--eval=false", "--nproc=2"},
       "--backend=fake: one process pretends all ranks"},
      {"FakeStraggler",
       "ddp",
       {"--backend=fake", "--eval=false", "--fake_straggler_rank=2"},
       "--fake_straggler_rank=2: must be between -1 and 1"},
      {"TrainSizeBeyondMemory",
       "ddp",
       {"--train_size=4611686018427387904"},
       "--train_size=4611686018427387904: must be between 1 and 1000000000"},
      {"NprocZero",
       "ddp",
       {"--nproc=0"},
       "--nproc=0: must be between 1 and 1024"},
      {"NprocOfSingle",
       "single",
       {"--nproc=2"},
       "single is one process; use the trainer ddp"},
      {"RecordFolder",
       "single",
       {std::string("--record=") + kMissing},
       "the folder /nonexistent-folder does not exist"},
      {"CheckpointFolder",
       "single",
       {std::string("--checkpoint_dir=") + kMissing},
       "does not exist"},
      {"RecordInAFile",
       "single",
       {"--record=/dev/null/run.jsonl"},
       "--record=/dev/null/run.jsonl: /dev/null is not a folder"},
      {"CheckpointFolderIsAFile",
       "single",
       {"--checkpoint_dir=/dev/null"},
       "--checkpoint_dir=/dev/null: is not a folder"},
      {"LogFolderIsAFile",
       "ddp",
       {"--nproc=2", "--log_dir=/dev/null"},
       "--log_dir=/dev/null: is not a folder"},
      {"CifarFolderIsAFile",
       "single",
       {"--dataset=cifar10", "--data_dir=/dev/null"},
       "/dev/null is not a folder",
       {},
       /*code=*/1},
      {"LogFolder",
       "ddp",
       {std::string("--log_dir=") + kMissing},
       "does not exist"},
      {"ResumeFromNowhere",
       "single",
       {"--resume"},
       "--resume: needs --checkpoint_dir"},
      {"CheckpointEveryNowhere",
       "single",
       {"--checkpoint_every=5"},
       "--checkpoint_every: needs --checkpoint_dir"},
      {"CheckpointEverySecondsNowhere",
       "single",
       {"--checkpoint_every=5s"},
       "--checkpoint_every: needs --checkpoint_dir"},
      {"CheckpointEveryHalfASecond",
       "single",
       {"--checkpoint_every=500ms"},
       "--checkpoint_every=500ms: must be between 0 and 1000000000000 steps "
       "(200), or a time of at least 1s (30s, 5m)"},
      {"CheckpointEveryMinusOne",
       "single",
       {"--checkpoint_every=-1"},
       "--checkpoint_every=-1: must be between 0 and"},
      {"RestartsFromNowhere",
       "single",
       {"--max_restarts=1"},
       "--max_restarts: needs --checkpoint_dir"},
      {"GlobalBatchThatDoesNotDivide",
       "ddp",
       {"--global_batch_size=9", "--accumulate=2"},
       "--global_batch_size=9: is not a multiple of 1 data-parallel ranks x 2 "
       "micro-batches"},
      {"KeepCheckpoints",
       "single",
       {"--keep_checkpoints=0"},
       "--keep_checkpoints=0: must be between 1 and 1000000"},
      {"RendezvousTimeout",
       "ddp",
       {"--rendezvous_timeout=0s"},
       "--rendezvous_timeout=0: must be at least 1s"},
      {"CollectiveTimeout",
       "ddp",
       {"--collective_timeout=10ms"},
       "--collective_timeout=10ms: must be at least 1s"},
      {"TimeoutWithoutUnit",
       "ddp",
       {"--collective_timeout=10"},
       "Illegal value '10' specified for flag 'collective_timeout'"},
      {"Engine",
       "ddp",
       {"--ddp=horovod"},
       "--ddp=horovod: must be one of reducer, simple"},
      {"CommHook",
       "ddp",
       {"--comm_hook=int8"},
       "--comm_hook=int8: must be one of none, fp16, bf16"},
      {"HookOfSimple",
       "ddp",
       {"--ddp=simple", "--comm_hook=fp16"},
       "none with --ddp=simple"},
      {"BucketSize",
       "ddp",
       {"--bucket_cap_mb=0"},
       "--bucket_cap_mb=0: must be above 0"},
      {"FirstBucket",
       "ddp",
       {"--first_bucket_mb=-1"},
       "--first_bucket_mb=-1: must be above 0"},
      {"CifarWithoutFolder", "single", {"--dataset=cifar10"}, "by --data_dir"},
      {"CifarMissingFolder",
       "single",
       {"--dataset=cifar10", std::string("--data_dir=") + kMissing},
       "there is no folder /nonexistent-folder/file; download",
       {},
       /*code=*/1},
      {"EmptyEpoch",
       "ddp",
       {"--backend=fake", "--fake_world_size=3", "--train_size=2",
        "--drop_last", "--eval=false"},
       "an epoch has no batch: 2 training examples over 3 ranks"},
  };
}

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

INSTANTIATE_TEST_SUITE_P(Flags, BadInputTest, ::testing::ValuesIn(BadFlags()),
                         NameOf);
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

// The test set is one batch of 12 GB of pixels, the training set is small.
TEST(BadFilesTest, AnEvaluationThatFailsIsCalledThat) {
  const std::string command =
      "ulimit -v 12000000 && exec " + Runfile("trainers/single") +
      " --train_size=64 --test_size=4000000 --batch_size=4000000 --max_steps=1";
  TestProcess run({"/bin/sh", "-c", command});
  const int code = run.Wait();
  ExpectRefused({code, run.Stdout(), run.Stderr()},
                "the evaluation after epoch 1 failed: loading data ran out of "
                "memory");
}

TEST(BadFilesTest, MemoryThatIsNotThereNamesTheFlagsThatHelp) {
  // One batch of 12 GB of pixels, where 12 GB of address space is all there is.
  const std::string command =
      "ulimit -v 12000000 && exec " + Runfile("trainers/single") +
      " --train_size=4000000 --batch_size=4000000 --eval=false --max_steps=1";
  TestProcess run({"/bin/sh", "-c", command});
  const int code = run.Wait();
  ExpectRefused({code, run.Stdout(), run.Stderr()}, "ran out of memory");
  EXPECT_THAT(run.Stderr(), HasSubstr("--batch_size"));
}

}  // namespace
}  // namespace rankwise
