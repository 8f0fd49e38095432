// Measures the time for a rank to open a checkpoint of many shards, each with
// some rows of every tensor:
//   bazel run -c opt //trainers/checkpoint:checkpoint_index_benchmark

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "torch/types.h"
#include "trainers/checkpoint/checkpoint_file.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/checkpoint_reader.h"

namespace rankwise {
namespace {

// One parameter and its two Adam moments for each of 8 layers.
constexpr int kTensors = 24;

// The folder of a checkpoint of step 1 in `shards` shards.
class MadeShards {
 public:
  explicit MadeShards(int shards) : dir_(MakeFolder()) {
    for (int shard = 0; shard < shards; ++shard) {
      Checkpoint part;
      part.step = 1;
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        part.tensors.push_back({absl::StrCat("model.", tensor, ".weight"),
                                torch::ones({1, 4}),
                                {shard, 0},
                                {shards, 4}});
      }
      const CheckpointName name{1, shard, shards};
      const std::string path = dir_ / FormatCheckpointName(name);
      if (!SaveCheckpointFile(path, name, part).ok()) std::abort();
    }
  }
  ~MadeShards() { std::filesystem::remove_all(dir_); }

  CheckpointSet Set() const { return ListCheckpointSets(dir_)->front(); }

 private:
  static std::filesystem::path MakeFolder() {
    std::string dir = std::filesystem::temp_directory_path() / "shards_XXXXXX";
    if (mkdtemp(dir.data()) == nullptr) std::abort();
    return dir;
  }

  const std::filesystem::path dir_;
};

void OpenCheckpoint(benchmark::State& state) {
  const MadeShards shards(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    const auto reader = CheckpointReader::Open(shards.Set());
    if (!reader.ok()) state.SkipWithError(reader.status().ToString().c_str());
  }
}
BENCHMARK(OpenCheckpoint)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace rankwise
