// Saves and loads the same model on many meshes, whole or sharded: every mesh
// loads what every other saved, bit for bit.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mesh.h"
#include "parallel/comm/test_ranks.h"
#include "trainers/checkpoint/load_all_for_test.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/loop/mesh_use.h"
#include "trainers/loop/optimizer.h"
#include "trainers/models/model.h"
#include "trainers/resume/run_checkpoints.h"

namespace rankwise {
namespace {

using Tensors = std::map<std::string, torch::Tensor>;

constexpr int64_t kStepExamples = 12;

struct Mesh {
  std::string name;
  int dp = 1, tp = 1;
  int shards = 0;  // ranks along dp that divide the rows; 0 without sharding
};

// Moves this rank's rows of every parameter out of the model.
ShardedState ShardsOf(const Model& model, const Group& group) {
  const at::NoGradGuard no_grad;
  ShardedState sharded{.group = group};
  for (const auto& entry : model.named_parameters()) {
    torch::Tensor whole = entry.value().detach();
    const int64_t rows = whole.size(0);
    const int64_t part = (rows + group.size() - 1) / group.size();
    const int64_t begin = std::min(group.place() * part, rows);
    const int64_t size = std::min(part, rows - begin);
    sharded.shards[entry.key()] = {whole.narrow(0, begin, size).clone(), begin,
                                   rows};
    whole.fill_(std::numeric_limits<float>::quiet_NaN());
  }
  return sharded;
}

// One rank's model, optimizer and checkpoints.
class Rank {
 public:
  Rank(const Mesh& mesh, Communicator& comm) {
    worker_.env = comm.env();
    worker_.comm = &comm;
    worker_.layout =
        *LayOutRanks({{"dp", mesh.dp}, {"tp", mesh.tp}}, comm.world_size());
    worker_.mesh = *DeviceMesh::Create(comm, worker_.layout);
    config_.data.batch_size = kStepExamples / mesh.dp;
    config_.optimizer.name = "adam";
    const ModelConfig config{.name = "gpt",
                             .depth = 1,
                             .width = 64,
                             .sequence_length = 8,
                             .split = {.tensor = mesh.tp}};
    const ModelSpec spec = *MakeModelSpec(config);
    model_ = std::make_shared<Model>(
        spec, std::vector<LayerRange>{{0, spec.layers.size()}},
        ParallelOf(worker_, config.split, nullptr, nullptr));
    NamedTensors owned = TrainableParameters(*model_);
    if (mesh.shards > 0) {
      sharded_ = ShardsOf(*model_, ShardGroup(mesh, comm));
      owned.clear();
      for (const auto& [name, shard] : sharded_.shards)
        owned.emplace_back(name, shard.rows);
    }
    optimizer_ = *MakeOptimizer(owned, config_.optimizer);
  }

  Optimizer& optimizer() { return *optimizer_; }

  void Save(const std::string& dir) {
    ExpectOk(Open(dir).Save({.step = 1, .epoch = 1}).status());
    ExpectOk(Open(dir).Export());
  }

  void Load(const std::string& dir) {
    const auto loaded = Open(dir).Resume();
    ExpectOk(loaded.status());
    EXPECT_TRUE(loaded.ok() && loaded->has_value());
  }

 private:
  static void ExpectOk(const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
  }

  Group ShardGroup(const Mesh& mesh, Communicator& comm) {
    if (mesh.shards == mesh.dp) return worker_.mesh->group("dp");
    std::vector<int> line = worker_.Line("dp");
    const auto first =
        line.begin() + worker_.dp_rank() / mesh.shards * mesh.shards;
    return *comm.NewGroup("shards", {first, first + mesh.shards});
  }

  RunCheckpoints Open(const std::string& dir) {
    config_.checkpoint.dir = dir;
    RunCheckpoints checkpoints(config_, /*total_steps=*/9, worker_, *model_,
                               *optimizer_, sharded_);
    ExpectOk(checkpoints.Open());
    return checkpoints;
  }

  TrainConfig config_;
  Worker worker_;
  std::shared_ptr<Model> model_;
  ShardedState sharded_;
  std::unique_ptr<Optimizer> optimizer_;
};

std::string DirOf(const std::string& name) {
  const std::string dir = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(dir);
  return dir;
}

// Returns the trained tensors of a checkpoint.
Tensors TrainedIn(const std::string& dir) {
  CheckpointStore store(dir, 1);
  std::vector<std::string> warnings;
  const auto loaded = LoadAll(store, &warnings);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return {};
  Tensors tensors = TensorsOf(**loaded);
  std::erase_if(tensors, [](const auto& entry) {
    return entry.first.starts_with("rng") ||
           entry.first.starts_with("epoch_sums");
  });
  return tensors;
}

void ExpectEqual(const Tensors& got, const Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.count(name)) << name;
    EXPECT_TRUE(got.at(name).equal(tensor)) << name;
  }
}

// The export has exactly the model's tensors.
void ExpectExported(const std::string& dir, const Tensors& trained) {
  const auto exported = LoadSafetensors(dir + "/model.safetensors");
  ASSERT_TRUE(exported.ok()) << exported.status();
  Tensors got;
  for (const auto& [name, tensor] : exported->tensors)
    got["model." + name] = tensor;
  Tensors want = trained;
  std::erase_if(want, [](const auto& entry) {
    return !entry.first.starts_with("model.");
  });
  ExpectEqual(got, want);
}

TEST(ShardedCheckpointTest, EveryMeshGoesOnFromEveryOther) {
  const std::vector<Mesh> chain = {
      {.name = "single"},
      {.name = "zero4", .dp = 4, .shards = 4},
      {.name = "single_again"},
      {.name = "zero2", .dp = 2, .shards = 2},
      {.name = "zero4_again", .dp = 4, .shards = 4},
      {.name = "tp2", .tp = 2},
      {.name = "tp2_zero2", .dp = 2, .tp = 2, .shards = 2},
      {.name = "zero3", .dp = 3, .shards = 3},
      {.name = "two_copies_of_zero2", .dp = 4, .shards = 2},
      {.name = "tp2_again", .tp = 2},
      {.name = "ddp2", .dp = 2},
  };
  at::manual_seed(1);
  Tensors expected;
  std::string last;
  for (const Mesh& mesh : chain) {
    SCOPED_TRACE(mesh.name);
    const std::string dir = DirOf(mesh.name);
    OnRanks(mesh.dp * mesh.tp, [&](Communicator& comm) {
      Rank rank(mesh, comm);
      if (last.empty()) {
        for (auto& [name, tensor] : rank.optimizer().State())
          tensor.copy_(at::rand(tensor.sizes()));
      } else {
        rank.Load(last);
      }
      rank.Save(dir);
    });
    const Tensors trained = TrainedIn(dir);
    if (expected.empty()) expected = trained;
    ExpectEqual(trained, expected);
    ExpectExported(dir, expected);
    last = dir;
  }
}

TEST(ShardedCheckpointTest, EveryRankSavesItsOwnRowsAlone) {
  const std::string dir = DirOf("own_rows");
  OnRanks(4, [&](Communicator& comm) {
    Rank({.name = "", .dp = 4, .shards = 4}, comm).Save(dir);
  });
  int64_t largest = 0, all = 0;
  for (int shard = 0; shard < 4; ++shard) {
    const auto file = static_cast<int64_t>(std::filesystem::file_size(
        dir + "/" + FormatCheckpointName({1, shard, 4})));
    largest = std::max(largest, file);
    all += file;
  }
  EXPECT_LT(largest, all * 0.4);
}

TEST(ShardedCheckpointTest, OnlyTheFirstRankOpensFilesWithoutRowsOfItsOwn) {
  const Mesh mesh = {.name = "", .dp = 4, .shards = 4};
  const std::string dir = DirOf("opened"), of_last = DirOf("opened_by_last");
  OnRanks(4, [&](Communicator& comm) { Rank(mesh, comm).Save(dir); });
  // The last rank's folder has a damaged file that holds none of its rows.
  std::filesystem::copy(dir, of_last);
  std::filesystem::resize_file(of_last + "/" + FormatCheckpointName({1, 1, 4}),
                               0);
  OnRanks(4, [&](Communicator& comm) {
    Rank(mesh, comm).Load(comm.env().rank == 3 ? of_last : dir);
  });
}

}  // namespace
}  // namespace rankwise
