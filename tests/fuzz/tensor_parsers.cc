// Files of tensors: safetensors, checkpoints, CIFAR-10.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "samplers/datasets/dataset.h"
#include "tests/fuzz/parser.h"
#include "trainers/checkpoint/checkpoint_reader.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise::fuzz {
namespace {

// Placeholder for the correct length of a safetensors header.
constexpr char kRightLength[] = "right length";

std::string LengthField(uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof(length)};
}

NamedTensors SomeTensors() {
  return {{"fc.weight", at::arange(12, at::kFloat).view({3, 4})},
          {"fc.bias", at::arange(3, at::kBFloat16)},
          {"steps", at::arange(1, at::kLong).squeeze()},
          {"none", at::arange(0, at::kByte).view({0, 5})}};
}

std::vector<Parts> SafetensorsSeeds(const std::string& dir) {
  const std::string path = dir + "/seed.safetensors";
  if (!SaveSafetensors(path, SomeTensors(), {{"format", "pt"}}).ok()) return {};
  const std::string file = ReadFile(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const size_t data = sizeof(length) + length;
  return {
      {kRightLength, file.substr(sizeof(length), length), file.substr(data)},
      {LengthField(length), file.substr(sizeof(length), length),
       file.substr(data)}};
}

absl::string_view BytesOf(const torch::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

bool SameTensors(const NamedTensors& some, const NamedTensors& others) {
  if (some.size() != others.size()) return false;
  for (const auto& [name, tensor] : some) {
    const auto same = [&, &name = name, &tensor = tensor](const auto& other) {
      return other.first == name && other.second.dtype() == tensor.dtype() &&
             other.second.sizes() == tensor.sizes() &&
             BytesOf(other.second) == BytesOf(tensor);
    };
    if (std::none_of(others.begin(), others.end(), same)) return false;
  }
  return true;
}

// Accepted input must be unchanged after writing and reading it.
Verdict CheckSafetensors(const Parts& parts, const std::string& dir) {
  const std::string path = dir + "/weights.safetensors";
  WriteFile(path,
            absl::StrCat(parts[0] == kRightLength ? LengthField(parts[1].size())
                                                  : parts[0],
                         parts[1], parts[2]));
  const auto header = LoadSafetensorsHeader(path);
  const auto contents = LoadSafetensors(path);
  if (header.ok() != contents.ok())
    return {absl::OkStatus(), "header and contents disagree"};
  if (!contents.ok()) return {contents.status()};
  const std::string again_path = dir + "/again.safetensors";
  const absl::Status saved =
      SaveSafetensors(again_path, contents->tensors, contents->metadata);
  if (!saved.ok())
    return {absl::OkStatus(),
            absl::StrCat("cannot be saved: ", saved.message())};
  const auto again = LoadSafetensors(again_path);
  const bool same = again.ok() && again->metadata == contents->metadata &&
                    SameTensors(contents->tensors, again->tensors);
  return {absl::OkStatus(), same ? "" : "is written as another"};
}

constexpr int kShards = 2;
constexpr int64_t kStep = 7;
const int64_t kRows = 2, kColumns = 3;  // of a shard's block

CheckpointSet SetIn(const std::string& dir) {
  CheckpointSet set = {kStep, kShards, {}};
  for (int shard = 0; shard < kShards; ++shard) {
    set.paths[shard] =
        dir + "/" + FormatCheckpointName({kStep, shard, kShards});
  }
  return set;
}

// Saves a shard with a block of "w" with distinct values, and with `blocks` as
// the text that describes the block's position.
absl::Status SaveShard(const std::string& dir, int shard,
                       const std::string& blocks) {
  Checkpoint checkpoint;
  checkpoint.step = kStep;
  checkpoint.epoch = 1;
  checkpoint.metadata = {{"config", "{}"}, {"rankwise.blocks", blocks}};
  const int64_t first = 1 + shard * kRows * kColumns;
  checkpoint.tensors = {
      {"w", at::arange(first, first + kRows * kColumns, at::kFloat)
                .view({kRows, kColumns})}};
  return SaveCheckpointFile(SetIn(dir).paths[shard], {kStep, shard, kShards},
                            checkpoint);
}

std::string BlockText(int64_t first_row) {
  return absl::StrCat(R"({"w":{"tensor":"w","offsets":[)", first_row,
                      R"(,0],"shape":[)", kShards * kRows, ",", kColumns,
                      "]}}");
}

std::vector<Parts> IndexSeeds(const std::string&) {
  return {{BlockText(0), BlockText(kRows)}};
}

// Reads all tensors of the checkpoint.
absl::StatusOr<NamedTensors> ReadAll(const std::string& dir) {
  auto reader = CheckpointReader::Open(SetIn(dir));
  if (!reader.ok()) return reader.status();
  NamedTensors tensors;
  for (const std::string& name : reader->Names()) {
    auto tensor = reader->Read(name);
    if (!tensor.ok()) return tensor.status();
    tensors.emplace_back(name, *std::move(tensor));
  }
  return tensors;
}

// Every value of a tensor must be a saved one, and have one position: blocks
// neither overlap nor leave gaps.
Verdict CheckIndex(const Parts& parts, const std::string& dir) {
  for (int shard = 0; shard < kShards; ++shard) {
    const absl::Status saved = SaveShard(dir, shard, parts[shard]);
    // Text that is not UTF-8 is not written.
    if (!saved.ok()) return {absl::DataLossError("step_: not written")};
  }
  const auto tensors = ReadAll(dir);
  if (!tensors.ok()) return {tensors.status()};
  std::set<float> seen;
  for (const auto& [name, tensor] : *tensors) {
    const float* values = tensor.const_data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const bool saved = values[i] >= 1 &&
                         values[i] <= kShards * kRows * kColumns &&
                         values[i] == std::floor(values[i]);
      if (!saved || !seen.insert(values[i]).second)
        return {absl::OkStatus(),
                absl::StrCat("tensor ", name, " has the value ", values[i],
                             " at ", i)};
    }
  }
  return {};
}

std::vector<Parts> ShardSeeds(const std::string& dir) {
  for (int shard = 0; shard < kShards; ++shard)
    if (!SaveShard(dir, shard, BlockText(shard * kRows)).ok()) return {};
  return {{ReadFile(SetIn(dir).paths[1])}};
}

// A modified shard that is accepted must contain the saved values.
Verdict CheckShard(const Parts& parts, const std::string& dir) {
  if (const absl::Status saved = SaveShard(dir, 0, BlockText(0)); !saved.ok())
    return {absl::OkStatus(), std::string(saved.message())};
  WriteFile(SetIn(dir).paths[1], parts[0]);
  const auto tensors = ReadAll(dir);
  if (!tensors.ok()) return {tensors.status()};
  const int64_t values = kShards * kRows * kColumns;
  const NamedTensors saved = {
      {"w", at::arange(1, 1 + values, at::kFloat).view({-1, kColumns})}};
  return {absl::OkStatus(),
          SameTensors(saved, *tensors) ? "" : "the values are others"};
}

constexpr int64_t kCifarRecord = 3073, kCifarRecords = 10000;
constexpr int64_t kCifarBytes = kCifarRecord * kCifarRecords;

// Returns the bytes of the file: 0, except for `bytes` from `offset` on.
std::vector<Parts> CifarSeeds(const std::string&) {
  const std::string record =
      absl::StrCat(std::string(1, '\x07'), std::string(kCifarRecord - 1, 'a'));
  return {{absl::StrCat(kCifarBytes), "3073", record},
          {absl::StrCat(kCifarBytes), "30726927", record}};
}

// Returns a number in [0, most].
int64_t NumberIn(const std::string& text, int64_t most) {
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? std::clamp<int64_t>(number, 0, most)
                                         : most;
}

struct CifarFile {
  int64_t size, offset;
  std::string bytes;

  uint8_t At(int64_t at) const {
    const bool inside =
        at >= offset && at - offset < static_cast<int64_t>(bytes.size());
    return inside ? static_cast<uint8_t>(bytes[at - offset]) : 0;
  }
};

void Write(const CifarFile& file, const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0666);
  const ssize_t written =
      pwrite(fd, file.bytes.data(), file.bytes.size(), file.offset);
  if (written < 0 || ftruncate(fd, file.size) != 0) std::abort();
  close(fd);
}

// Must be accepted if and only if the size and all labels are valid; images are
// the bytes.
Verdict CheckCifar(const Parts& parts, const std::string& dir) {
  CifarFile file = {NumberIn(parts[0], 2 * kCifarBytes),
                    NumberIn(parts[1], kCifarBytes), parts[2]};
  Write(file, dir + "/test_batch.bin");
  const auto dataset = OpenCifar10({.data_dir = dir}, Split::kTest);
  bool valid = file.size == kCifarBytes;
  for (int64_t i = 0; i < kCifarRecords; ++i)
    valid = valid && file.At(i * kCifarRecord) < 10;
  if (valid != dataset.ok())
    return {absl::OkStatus(), valid ? "a valid file is refused" : "accepted"};
  if (!dataset.ok()) return {dataset.status()};
  const int64_t index = std::min(file.offset / kCifarRecord, kCifarRecords - 1);
  const Batch batch = (*dataset)->Gather({index});
  bool same = batch.target.item<int64_t>() == file.At(index * kCifarRecord);
  const uint8_t* pixels = batch.data.const_data_ptr<uint8_t>();
  for (int64_t i = 1; i < kCifarRecord; ++i)
    same = same && pixels[i - 1] == file.At(index * kCifarRecord + i);
  return {absl::OkStatus(), same ? "" : "another image"};
}

}  // namespace

std::vector<Parser> TensorParsers() {
  return {
      {"safetensors", SafetensorsSeeds, CheckSafetensors,
       R"(weights\.safetensors: at byte \d+: )"},
      {"checkpoint", ShardSeeds, CheckShard, R"(step_\d+.*\.safetensors: )"},
      {"checkpoint_index", IndexSeeds, CheckIndex, "step_"},
      {"cifar10", CifarSeeds, CheckCifar, R"(test_batch\.bin has .* byte)"}};
}

}  // namespace rankwise::fuzz
