// A killed save leaves the last checkpoint intact.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ATen/Parallel.h"
#include "gtest/gtest.h"
#include "torch/types.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/load_all_for_test.h"

namespace rankwise {
namespace {

constexpr int kShards = 3;
constexpr int64_t kRows = 4, kColumns = 20'000;

// Saves a checkpoint in three shards whose values encode the step.
bool SaveStep(std::vector<CheckpointStore>& stores, int64_t step,
              torch::Tensor rows) {
  rows.fill_(static_cast<double>(step));
  for (int shard = 0; shard < kShards; ++shard) {
    Checkpoint part;
    part.step = step;
    part.tensors = {
        {"w", rows, {kRows * shard, 0}, {kRows * kShards, kColumns}}};
    if (!stores[static_cast<size_t>(shard)].Save(part).ok()) return false;
  }
  return stores[0].Prune().ok();
}

// Saves checkpoints without end; writes each complete one's step to `told`.
[[noreturn]] void SaveWithoutEnd(std::vector<CheckpointStore>& stores,
                                 int64_t step, const torch::Tensor& rows,
                                 int told) {
  while (SaveStep(stores, step, rows) &&
         write(told, &step, sizeof(step)) == sizeof(step)) {
    ++step;
  }
  _exit(1);
}

TEST(KilledSaveTest, TheLastCheckpointLoadsWheneverTheKillComes) {
  const std::string dir = testing::TempDir() + "/killed";
  std::filesystem::create_directories(dir);
  at::set_num_threads(1);  // the children have no other threads
  std::mt19937 random(1);
  std::uniform_int_distribution<int> microseconds(0, 30'000);
  const torch::Tensor rows = torch::zeros({kRows, kColumns});
  std::vector<CheckpointStore> stores;
  for (int shard = 0; shard < kShards; ++shard)
    stores.emplace_back(dir, /*keep_last=*/1, shard, kShards);
  ASSERT_TRUE(SaveStep(stores, 1, rows));
  int64_t complete = 1;
  for (int kill_number = 0; kill_number < 20; ++kill_number) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) SaveWithoutEnd(stores, complete + 1, rows, ends[1]);
    close(ends[1]);
    std::this_thread::sleep_for(
        std::chrono::microseconds(microseconds(random)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the save failed";
    int64_t told = 0;
    while (read(ends[0], &told, sizeof(told)) == sizeof(told)) complete = told;
    close(ends[0]);

    std::vector<std::string> warnings;
    const auto loaded = LoadAll(stores[0], &warnings);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_GE((*loaded)->step, complete);
    EXPECT_LE((*loaded)->step, complete + 1);
    EXPECT_TRUE(
        TensorsOf(**loaded).at("w").eq((*loaded)->step).all().item<bool>());
    complete = (*loaded)->step;
  }
  EXPECT_GT(complete, 1);
}

}  // namespace
}  // namespace rankwise
