// Checkpoints of blocks of tensors: any other blocks can be read from them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/types.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/load_all_for_test.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Ranks that divide rows and columns.
struct Grid {
  int rows = 1, columns = 1;
  int size() const { return rows * columns; }
};

struct Range {
  int64_t begin = 0, size = 0;
};

// Returns part i of n of `size`: ceil(size / n), or less for the last ones.
Range ShareOf(int64_t size, int i, int n) {
  const int64_t part = (size + n - 1) / n;
  const int64_t begin = std::min(i * part, size);
  return {begin, std::min(part, size - begin)};
}

class CheckpointBlocksTest : public testing::Test {
 protected:
  CheckpointBlocksTest()
      : dir_(fs::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(dir_);
    at::manual_seed(1);
    whole_ = {{"model.matrix", torch::rand({61, 9})},
              {"model.vector", torch::rand({7}, torch::kDouble)},
              {"model.few", torch::randint(9, {2, 3}, torch::kLong)},
              {"model.kernel", torch::rand({5, 4, 3, 3})},
              {"optimizer.step", torch::full({}, 17.0)}};
  }

  // Returns the blocks of the whole tensors `of` that `rank` of `grid` owns.
  static std::vector<TensorBlock> BlocksOf(
      const std::map<std::string, torch::Tensor>& of, const Grid& grid,
      int rank) {
    std::vector<TensorBlock> blocks;
    for (const auto& [name, tensor] : of) {
      if (tensor.dim() == 0) {
        blocks.push_back({name, tensor});
        continue;
      }
      const Range rows =
          ShareOf(tensor.size(0), rank / grid.columns, grid.rows);
      TensorBlock block{name, tensor.narrow(0, rows.begin, rows.size),
                        std::vector<int64_t>(tensor.dim(), 0),
                        tensor.sizes().vec()};
      block.offsets[0] = rows.begin;
      if (tensor.dim() == 2) {
        const Range columns =
            ShareOf(tensor.size(1), rank % grid.columns, grid.columns);
        block.values = block.values.narrow(1, columns.begin, columns.size);
        block.offsets[1] = columns.begin;
      }
      if (block.values.numel() > 0) blocks.push_back(block);
    }
    return blocks;
  }

  CheckpointStore StoreOf(int shard, int shards) const {
    return CheckpointStore(dir_, 2, shard, shards);
  }

  void Save(int64_t step, const Grid& grid) {
    for (int rank = 0; rank < grid.size(); ++rank) {
      Checkpoint part;
      part.step = step;
      part.tensors = BlocksOf(whole_, grid, rank);
      CheckpointStore store = StoreOf(rank, grid.size());
      const absl::Status status = store.Save(part);
      ASSERT_TRUE(status.ok()) << status;
      if (rank + 1 == grid.size()) {
        ASSERT_TRUE(store.Prune().ok());
      }
    }
  }

  // Ranks in this grid read exactly the saved values.
  void ExpectLoads(int64_t step, const Grid& grid) {
    for (int rank = 0; rank < grid.size(); ++rank) {
      std::map<std::string, torch::Tensor> read;
      for (const auto& [name, tensor] : whole_)
        read[name] = torch::zeros_like(tensor);
      const auto wanted = BlocksOf(read, grid, rank);
      std::vector<std::string> warnings;
      const auto loaded = StoreOf(0, 1).LoadLatest(
          &warnings, [&](CheckpointReader& reader) -> absl::Status {
            for (const TensorBlock& block : wanted) {
              RETURN_IF_ERROR(reader.Read(block));
            }
            return absl::OkStatus();
          });
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      EXPECT_EQ(*loaded, step);
      EXPECT_THAT(warnings, IsEmpty());
      const auto expected = BlocksOf(whole_, grid, rank);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(wanted[i].values.equal(expected[i].values))
            << wanted[i].name << " of rank " << rank;
      }
    }
  }

  // Overwrites bytes of one of four row shards of the matrix.
  void Damage(int shard, int64_t from, int64_t size) {
    const std::string path = StoreOf(shard, 4).Path(1);
    const auto header = LoadSafetensorsHeader(path);
    ASSERT_TRUE(header.ok()) << header.status();
    for (const TensorEntry& entry : header->entries) {
      if (entry.name != "model.matrix") continue;
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(header->data_begin + entry.begin + from);
      file << std::string(std::min(size, entry.end - entry.begin - from), 'x');
    }
  }

  absl::Status ReadRows(int64_t begin, int64_t size) {
    torch::Tensor rows = torch::zeros({size, 640});
    std::vector<std::string> warnings;
    RETURN_IF_ERROR(
        StoreOf(0, 1)
            .LoadLatest(&warnings,
                        [&](CheckpointReader& reader) {
                          return reader.Read(
                              {"model.matrix", rows, {begin, 0}, {700, 640}});
                        })
            .status());
    EXPECT_TRUE(rows.equal(whole_["model.matrix"].narrow(0, begin, size)));
    return absl::OkStatus();
  }

  const fs::path dir_;
  std::map<std::string, torch::Tensor> whole_;
};

TEST_F(CheckpointBlocksTest, EveryGridReadsWhatEveryOtherSaved) {
  const std::vector<Grid> grids = {{4, 1}, {1, 1}, {2, 1},
                                   {3, 1}, {2, 2}, {1, 3}};
  int64_t step = 0;
  for (const Grid& saved : grids) {
    Save(++step, saved);
    for (const Grid& read : grids) {
      SCOPED_TRACE(testing::Message()
                   << saved.rows << "x" << saved.columns << " read as "
                   << read.rows << "x" << read.columns);
      ExpectLoads(step, read);
    }
  }
}

// A shard is 175 rows of 2560 bytes: two chunks of 256 KiB.
TEST_F(CheckpointBlocksTest, OnlyTheChunksThatAreNeededAreRead) {
  constexpr int64_t kChunk = 1 << 18, kAll = 1 << 30;
  whole_ = {{"model.matrix", torch::rand({700, 640})}};
  Save(1, {4, 1});
  Damage(0, kChunk, kAll);
  Damage(1, 0, kChunk);
  Damage(2, 0, kAll);
  EXPECT_TRUE(ReadRows(0, 100).ok());
  EXPECT_TRUE(ReadRows(175 + 103, 72).ok()) << "of the second chunk alone";
  EXPECT_TRUE(ReadRows(3 * 175, 175).ok());
  for (const int64_t begin : {100, 175, 500}) {
    const absl::Status status = ReadRows(begin, 100);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("was written: the file was changed"));
  }
}

TEST_F(CheckpointBlocksTest, BlocksOfOneFileHaveEntriesOfTheirOwn) {
  const torch::Tensor whole = torch::arange(6);
  Checkpoint part;
  for (const int64_t begin : {4, 0, 2}) {
    part.tensors.push_back({"w", whole.narrow(0, begin, 2), {begin}, {6}});
  }
  CheckpointStore store = StoreOf(0, 1);
  ASSERT_TRUE(store.Save(part).ok());
  const auto header = LoadSafetensorsHeader(store.Path(0));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->entries[1].name, "w#1");
  EXPECT_THAT(header->metadata.at("rankwise.blocks"),
              HasSubstr(R"("w#1":{"tensor":"w","offsets":[0],"shape":[6]})"));
  std::vector<std::string> warnings;
  EXPECT_TRUE(TensorsOf(**LoadAll(store, &warnings)).at("w").equal(whole));

  part.tensors.pop_back();
  ASSERT_TRUE(store.Save(part).ok());
  EXPECT_THAT(std::string(LoadAll(store, &warnings).status().message()),
              HasSubstr("tensor w do not make up the whole"));
}

TEST_F(CheckpointBlocksTest, AnotherShapeIsRefused) {
  Save(1, {2, 1});
  std::vector<std::string> warnings;
  const absl::Status status =
      StoreOf(0, 1)
          .LoadLatest(&warnings,
                      [](CheckpointReader& reader) {
                        return reader.Read({"model.few", torch::zeros({3})});
                      })
          .status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model.few has another shape: [2, 3], not [3]"));
}

// Returns the error of reading a file with valid checksums whose
// rankwise.blocks is `blocks`, for its tensor w, 2 x 3.
std::string ReadingBlock(const std::string& dir, const std::string& blocks) {
  Checkpoint checkpoint;
  checkpoint.metadata = {{"rankwise.blocks", blocks}};
  checkpoint.tensors = {{"v", torch::ones({2, 3})}, {"w", torch::ones({2, 3})}};
  const std::string path = dir + "/" + FormatCheckpointName({});
  EXPECT_TRUE(SaveCheckpointFile(path, {}, checkpoint).ok());
  auto reader = CheckpointReader::Open({0, 1, {{0, path}}});
  if (!reader.ok()) return std::string(reader.status().message());
  return std::string(reader->Read("w").status().message());
}

TEST_F(CheckpointBlocksTest, BlocksThatAreNoneAreRefused) {
  fs::create_directories(dir_);
  const auto block = [](const std::string& offsets, const std::string& shape) {
    return R"({"w":{"tensor":"w","offsets":)" + offsets + R"(,"shape":)" +
           shape + "}}";
  };
  EXPECT_EQ(ReadingBlock(dir_, block("[0,0]", "[2,3]")), "");
  EXPECT_THAT(ReadingBlock(dir_, "{"),
              HasSubstr("rankwise.blocks is no JSON object"));
  const std::string deep =
      std::string(1 << 17, '[') + std::string(1 << 17, ']');
  EXPECT_THAT(ReadingBlock(dir_, "{\"w\":" + deep + ",\"x\":1}"),
              HasSubstr("does not say which block the entry w is"));
  for (const std::string& bad :
       {block("[1,0]", "[2,3]"), block("[0,0]", "[1,3]"), block("[0]", "[2]"),
        block("[-1,0]", "[2,3]"), block("[0.5,0]", "[2,3]"),
        block("[9223372036854775807,0]", "[9223372036854775807,3]"),
        block("[18446744073709551615,0]", "[2,3]"),
        block("[0,0]", "[9223372036854775808,3]"),
        std::string(R"({"w":[]})")}) {
    EXPECT_THAT(ReadingBlock(dir_, bad),
                HasSubstr("does not say which block the entry w is"))
        << bad;
  }
  EXPECT_THAT(ReadingBlock(dir_, block("[0,0]", "[1000000000000,1000000000]")),
              HasSubstr("tensor w do not make up the whole"));
  EXPECT_THAT(ReadingBlock(
                  dir_, R"({"v":{"tensor":"w","offsets":[1,0],"shape":[4,3]},)"
                        R"("w":{"tensor":"w","offsets":[0,0],"shape":[4,3]}})"),
              HasSubstr("its block of the tensor w overlaps another one"));
}

// 16 shards, each with 2 x 2 of 8 x 8 values.
TEST_F(CheckpointBlocksTest, AnOverlapInAGridIsFound) {
  CheckpointSet set;
  set.step = 1;
  set.num_shards = 16;
  const auto save = [&](int shard, int64_t row, int64_t column) {
    const CheckpointName name{1, shard, 16};
    set.paths[shard] = dir_ / FormatCheckpointName(name);
    Checkpoint part;
    part.step = 1;
    part.tensors = {{"w", torch::ones({2, 2}), {row, column}, {8, 8}}};
    EXPECT_TRUE(SaveCheckpointFile(set.paths[shard], name, part).ok());
  };
  fs::create_directories(dir_);
  for (int shard = 0; shard < 16; ++shard)
    save(shard, 2 * (shard / 4), 2 * (shard % 4));
  auto reader = CheckpointReader::Open(set);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(reader->Read("w")->equal(torch::ones({8, 8})));
  save(10, 4, 3);
  EXPECT_THAT(std::string(CheckpointReader::Open(set).status().message()),
              HasSubstr(set.paths[10] +
                        ": its block of the tensor w overlaps another one"));
}

}  // namespace
}  // namespace rankwise
