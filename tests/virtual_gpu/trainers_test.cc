// Tests steps of every trainer on virtual GPUs, in many layouts: their use of
// streams, events, collectives and graphs must be valid in CUDA and NCCL, and
// no memory may be accessed too early. The virtual GPU ends an invalid program
// with code 70.
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/device/require_gpus.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

struct Layout {
  int gpus = 1;
  std::string trainer;
  std::string flags;
};

constexpr char kGpt[] =
    "--model=gpt --depth=4 --width=64 --sequence_length=32 --batch_size=4 ";

std::vector<Layout> Layouts() {
  const std::string gpt = kGpt;
  return {
      {1, "single", "--model=simple_cnn --cuda_graph"},
      {1, "single", gpt + "--precision=bf16"},
      {1, "model_parallel", gpt + "--devices=cuda:0,cuda:0"},
      {2, "single", "--model=mlp --device=cuda:1"},
      {2, "ddp", "--model=simple_cnn_bn --sync_batch_norm"},
      {2, "ddp", "--model=mlp --cuda_graph"},
      {2, "data_parallel", gpt + "--devices=cuda:0,cuda:1"},
      {2, "model_parallel", gpt},
      {2, "tensor_parallel", gpt + "--sequence_parallel"},
      {2, "fsdp", gpt + "--zero=1 --clip_grad_norm=1"},
      {2, "fsdp", gpt + "--zero=2 --offload_optimizer"},
      {2, "fsdp", gpt + "--zero=3 --recompute --precision=bf16"},
      {2, "pipeline", gpt + "--microbatches=4 --schedule=zbv"},
      {2, "hybrid", gpt + "--cp=2 --microbatches=2"},
      {2, "hybrid", gpt + "--cp=2 --context=ulysses --microbatches=2"},
      {4, "fsdp", gpt + "--zero=3 --shard_ranks=2"},
      {4, "hybrid",
       gpt + "--dp=2 --pp=2 --schedule=interleaved_1f1b --zero=3 "
             "--microbatches=4"},
      {4, "hybrid", gpt + "--tp=2 --pp=2 --schedule=zbv --microbatches=4"},
      {4, "hybrid", gpt + "--cp=2 --dp=2 --zero=2 --microbatches=2"},
      {8, "hybrid", gpt + "--dp=2 --tp=2 --pp=2 --microbatches=4"},
      {8, "ddp", "--model=mlp"},
  };
}

std::vector<std::string> FlagsOf(const Layout& layout) {
  std::vector<std::string> flags =
      absl::StrSplit(layout.flags, ' ', absl::SkipEmpty());
  if (!absl::StrContains(layout.flags, "--device")) {
    flags.push_back("--device=cuda");
    flags.push_back(absl::StrCat("--nproc=", layout.gpus));
  }
  flags.insert(flags.end(), {"--max_steps=20", "--eval=false", "--epochs=1",
                             "--train_size=4096"});
  return flags;
}

class TrainersOnGpusTest : public ::testing::TestWithParam<Layout> {};

TEST_P(TrainersOnGpusTest, Take20Steps) {
  const Layout& layout = GetParam();
  if (auto why = WhyTooFewGpus(layout.gpus); !why.empty()) GTEST_SKIP() << why;
  const Finished run =
      RunTrainer(layout.trainer, FlagsOf(layout), {}, absl::Seconds(120));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("rank 0 of"));
}

INSTANTIATE_TEST_SUITE_P(All, TrainersOnGpusTest,
                         ::testing::ValuesIn(Layouts()),
                         [](const ::testing::TestParamInfo<Layout>& info) {
                           return absl::StrCat(info.param.trainer, "_",
                                               info.index);
                         });

TEST(FaultsOnGpusTest, AKilledRankEndsTheOthers) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  const auto ddp =
      StartTrainer("ddp", {"--nproc=2", "--device=cuda", "--model=mlp",
                           "--epochs=1000", "--eval=false", "--log_every=1"});
  ASSERT_TRUE(ddp->AwaitOutput("step 3/", 1, absl::Seconds(60)));
  const std::vector<pid_t> ranks = ChildrenOf(ddp->pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  EXPECT_EQ(ddp->Wait(), 128 + SIGKILL);
  EXPECT_THAT(ddp->Stderr(), HasSubstr("rank 1"));
}

TEST(FaultsOnGpusTest, AStoppedRankIsATimeOut) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  const auto fsdp = StartTrainer(
      "fsdp", {"--nproc=2", "--device=cuda", "--model=mlp", "--epochs=1000",
               "--eval=false", "--log_every=1", "--collective_timeout=4s"});
  ASSERT_TRUE(fsdp->AwaitOutput("step 3/", 1, absl::Seconds(60)));
  const std::vector<pid_t> ranks = ChildrenOf(fsdp->pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGSTOP);
  EXPECT_NE(fsdp->Wait(), 0);
  EXPECT_THAT(fsdp->Stderr(), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace rankwise
