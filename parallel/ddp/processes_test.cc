// Data parallelism over real processes: this test spawns itself once per rank.
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/test_ranks.h"

namespace rankwise {
namespace {

constexpr int kSteps = 5;

// `--rank RANK WORLD_SIZE FOLDER`: trains, then writes the distance from a
// process trained on all ranks' rows, and the parameters' fingerprint.
int RunRank(int rank, int world_size, const std::string& folder) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto comm = ConnectRank(rank, world_size, folder + "/processes.store");
  TestNet net, alone;
  auto ddp = DistributedDataParallel::Create(net, comm->world(), {});
  TORCH_CHECK(ddp.ok(), ddp.status().ToString());
  for (int step = 0; step < kSteps; ++step) {
    ZeroGradients(net);
    Backward(net, **ddp, BatchOf(step, rank));
    Descend(net);
    ZeroGradients(alone);
    LossOf(alone, GlobalBatch(step, world_size)).backward();
    Descend(alone);
  }
  const absl::Status diverged = CheckDivergence(net, comm->world());
  TORCH_CHECK(diverged.ok(), diverged.ToString());
  ddp->reset();  // must precede its process group
  uint64_t hash = 0;
  for (const torch::Tensor& value : Values(net)) {
    hash = hash * 31 + FingerprintTensor(value);
  }
  std::ofstream(absl::StrCat(folder, "/rank", rank))
      << Distance(Values(net), Values(alone)) << " " << hash;
  return 0;
}

pid_t StartRank(int rank, int world_size, const std::string& folder) {
  std::vector<std::string> args{"processes_test", "--rank", absl::StrCat(rank),
                                absl::StrCat(world_size), folder};
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(),
                        environ),
            0);
  return pid;
}

TEST(ProcessesTest, EqualOneProcessWithTheConcatenatedBatch) {
  constexpr int kWorldSize = 3;
  const std::string folder = testing::TempDir();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    ranks.push_back(StartRank(rank, kWorldSize, folder));
  }
  for (pid_t pid : ranks) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  std::vector<std::string> hashes(kWorldSize);
  for (int rank = 0; rank < kWorldSize; ++rank) {
    double distance = 1;
    std::ifstream(absl::StrCat(folder, "/rank", rank)) >> distance >>
        hashes[rank];
    EXPECT_LT(distance, 1e-6) << "rank " << rank;
  }
  EXPECT_THAT(hashes, testing::Each(hashes[0]));
  EXPECT_NE(hashes[0], "");
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  int rank = 0, world_size = 0;
  if (argc == 5 && std::string(argv[1]) == "--rank" &&
      absl::SimpleAtoi(argv[2], &rank) &&
      absl::SimpleAtoi(argv[3], &world_size)) {
    return rankwise::RunRank(rank, world_size, argv[4]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
