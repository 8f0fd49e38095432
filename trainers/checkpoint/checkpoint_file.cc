#include "trainers/checkpoint/checkpoint_file.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "records/command_line.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checksum.h"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;
// For reading: when an object grows, ordered_json copies its contents
// recursively, which overflows the stack for deeply nested files.
using ReadJson = nlohmann::json;

constexpr char kVersionKey[] = "rankwise.checkpoint_version";
constexpr char kStepKey[] = "rankwise.step";
constexpr char kEpochKey[] = "rankwise.epoch";
constexpr char kPositionKey[] = "rankwise.position";
constexpr char kShardKey[] = "rankwise.shard";
constexpr char kBlocksKey[] = "rankwise.blocks";
constexpr char kChecksumsKey[] = "rankwise.checksums";
constexpr char kChecksumKey[] = "rankwise.checksum";

constexpr int64_t kVersion = 2;
constexpr int64_t kChunkBytes = 1 << 18;
constexpr int64_t kDigits = 16;  // of a checksum

int64_t ChunksIn(int64_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes;
}

std::string Digits(const Checksum& checksum) {
  return absl::StrFormat("%016x", checksum.value());
}

// Returns the checksums of the chunks of `bytes`, which must be contiguous.
std::string ChecksumsOf(const torch::Tensor& bytes) {
  const char* data = static_cast<const char*>(bytes.const_data_ptr());
  const auto size = static_cast<int64_t>(bytes.nbytes());
  std::string checksums;
  for (int64_t begin = 0; begin < size; begin += kChunkBytes) {
    Checksum checksum;
    checksum.Add(data + begin,
                 static_cast<size_t>(std::min(kChunkBytes, size - begin)));
    checksums += Digits(checksum);
  }
  return checksums;
}

void AddMetadata(const SafetensorsMetadata& metadata, Checksum& checksum) {
  for (const auto& [key, value] : metadata) {
    if (key == kChecksumKey) continue;
    checksum.Add(key);
    checksum.Add(value);
  }
}

void AddEntry(const TensorEntry& entry, Checksum& checksum) {
  checksum.Add(entry.name);
  checksum.Add(c10::toString(entry.dtype));
  checksum.Add(entry.shape.data(), entry.shape.size() * sizeof(int64_t));
}

// Returns "1/2" for the second of two shards.
std::string ShardText(const CheckpointName& name) {
  return absl::StrCat(name.shard, "/", name.num_shards);
}

SafetensorsMetadata FullMetadata(const Checkpoint& checkpoint,
                                 const CheckpointName& name) {
  auto metadata = checkpoint.metadata;
  metadata["format"] = "pt";
  metadata[kVersionKey] = absl::StrCat(kVersion);
  metadata[kStepKey] = absl::StrCat(checkpoint.step);
  metadata[kEpochKey] = absl::StrCat(checkpoint.epoch);
  metadata[kPositionKey] = absl::StrCat(checkpoint.position);
  if (name.num_shards > 1) metadata[kShardKey] = ShardText(name);
  return metadata;
}

// Removes the text `key` from `metadata` and returns it.
absl::StatusOr<std::string> Take(SafetensorsMetadata& metadata,
                                 const char* key) {
  const auto node = metadata.extract(key);
  if (!node.empty()) return node.mapped();
  return absl::DataLossError(
      absl::StrCat("is not a rankwise checkpoint (no ", key, ")"));
}

absl::Status TakeNumber(SafetensorsMetadata& metadata, const char* key,
                        int64_t& number) {
  ASSIGN_OR_RETURN(const std::string text, Take(metadata, key));
  if (absl::SimpleAtoi(text, &number) && number >= 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(key, " ", Quoted(text), " is not a whole number"));
}

// Checks that the file is the shard given by its name.
absl::Status TakeShard(SafetensorsMetadata& metadata,
                       const CheckpointName& name) {
  const std::string shard = Take(metadata, kShardKey).value_or("0/1");
  if (shard == ShardText(name)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("holds shard ", absl::CHexEscape(shard), ", not ",
                   ShardText(name), " as its name says"));
}

absl::Status CheckSame(absl::string_view found, absl::string_view written) {
  if (found == written) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the contents have checksum ", found, " but ",
                   Quoted(written), " was written: the file was changed"));
}

// Parses a list of whole numbers from 0; too large ones become negative.
bool TakeNumbers(const ReadJson& json, std::vector<int64_t>& numbers) {
  if (!json.is_array() || !absl::c_all_of(json, [](const ReadJson& number) {
        return number.is_number_unsigned();
      })) {
    return false;
  }
  json.get_to(numbers);
  return true;
}

// Returns whether `json`, from rankwise.blocks, places an entry within a whole
// tensor; sets `block` accordingly.
bool TakeBlock(const ReadJson& json, CheckpointFile::Block& block) {
  if (!json.is_object() || !json.contains("tensor") ||
      !json["tensor"].is_string() || !json.contains("offsets") ||
      !json.contains("shape") || !TakeNumbers(json["offsets"], block.offsets) ||
      !TakeNumbers(json["shape"], block.whole_shape) ||
      block.offsets.size() != block.shape.size() ||
      block.whole_shape.size() != block.shape.size()) {
    return false;
  }
  json["tensor"].get_to(block.name);
  for (size_t i = 0; i < block.shape.size(); ++i) {
    // The difference of two non-negative sizes does not overflow.
    if (block.offsets[i] < 0 || block.whole_shape[i] < 0 ||
        block.offsets[i] > block.whole_shape[i] - block.shape[i])
      return false;
  }
  return true;
}

// Returns `status` preceded by the path of its file.
absl::Status Of(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

// Returns the file's entries, which append their chunks' checksums to
// `checksums` as they are written, and sets `blocks` (rankwise.blocks).
absl::StatusOr<std::vector<TensorSource>> SourcesOf(
    const std::vector<TensorBlock>& tensors, std::string& checksums,
    Json& blocks) {
  std::vector<TensorSource> sources;
  std::map<std::string, int> seen;
  for (const TensorBlock& block : tensors) {
    const int before = block.whole() ? 0 : seen[block.name]++;
    const std::string entry =
        before == 0 ? block.name : absl::StrCat(block.name, "#", before);
    ASSIGN_OR_RETURN(TensorSource source, SourceOf(entry, block.values));
    source.values = [values = block.values, &checksums] {
      const torch::Tensor written = values.detach().cpu().contiguous();
      checksums += ChecksumsOf(written);
      return written;
    };
    sources.push_back(std::move(source));
    if (block.whole()) continue;
    blocks[entry] = {{"tensor", block.name},
                     {"offsets", block.offsets},
                     {"shape", block.whole_shape}};
  }
  RETURN_IF_ERROR(AssignOffsets(sources));
  return sources;
}

}  // namespace

absl::Status SaveCheckpointFile(const std::string& path,
                                const CheckpointName& name,
                                const Checkpoint& checkpoint) {
  std::string checksums;
  Json blocks = Json::object();
  ASSIGN_OR_RETURN(const auto sources,
                   SourcesOf(checkpoint.tensors, checksums, blocks));
  SafetensorsMetadata metadata = FullMetadata(checkpoint, name);
  if (!blocks.empty()) {
    metadata[kBlocksKey] =
        blocks.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  int64_t chunks = 0;
  for (const auto& [entry, values] : sources)
    chunks += ChunksIn(entry.end - entry.begin);
  // Placeholders of equal length; known only when the data are written.
  metadata[kChecksumsKey] = std::string(chunks * kDigits, '0');
  metadata[kChecksumKey] = std::string(kDigits, '0');
  return WriteSafetensors(path, sources, metadata, [&] {
    metadata[kChecksumsKey] = checksums;
    Checksum header;
    AddMetadata(metadata, header);
    for (const auto& [entry, values] : sources) AddEntry(entry, header);
    metadata[kChecksumKey] = Digits(header);
    return metadata;
  });
}

absl::StatusOr<CheckpointFile> CheckpointFile::Open(
    const std::string& path, const CheckpointName& name,
    const SafetensorsHeaderText* text) {
  ASSIGN_OR_RETURN(SafetensorsHeader header,
                   text == nullptr ? LoadSafetensorsHeader(path)
                                   : ParseSafetensorsHeader(path, *text));
  CheckpointFile file(path, std::move(header));
  const absl::Status decoded = file.Decode(name);
  if (!decoded.ok()) return Of(path, decoded);
  return file;
}

absl::Status CheckpointFile::Decode(const CheckpointName& name) {
  SafetensorsMetadata metadata = header_.metadata;
  ASSIGN_OR_RETURN(checksum_, Take(metadata, kChecksumKey));
  int64_t version = 0;
  RETURN_IF_ERROR(TakeNumber(metadata, kVersionKey, version));
  if (version != kVersion) {
    return absl::DataLossError(absl::StrCat("has checkpoint version ", version,
                                            "; this program reads version ",
                                            kVersion));
  }
  RETURN_IF_ERROR(CheckHeader(metadata));
  RETURN_IF_ERROR(TakeNumber(metadata, kStepKey, saved_.step));
  RETURN_IF_ERROR(TakeNumber(metadata, kEpochKey, saved_.epoch));
  RETURN_IF_ERROR(TakeNumber(metadata, kPositionKey, saved_.position));
  if (saved_.step != name.step) {
    return absl::DataLossError(
        absl::StrCat("holds step ", saved_.step, ", not the step of its name"));
  }
  RETURN_IF_ERROR(TakeShard(metadata, name));
  RETURN_IF_ERROR(DecodeBlocks(metadata));
  metadata.erase("format");
  saved_.metadata = std::move(metadata);
  return absl::OkStatus();
}

absl::Status CheckpointFile::CheckHeader(SafetensorsMetadata& metadata) {
  Checksum checksum;
  AddMetadata(header_.metadata, checksum);
  int64_t chunks = 0;
  for (const TensorEntry& entry : header_.entries) {
    AddEntry(entry, checksum);
    chunks += ChunksIn(entry.end - entry.begin);
  }
  RETURN_IF_ERROR(CheckSame(Digits(checksum), checksum_));
  ASSIGN_OR_RETURN(checksums_, Take(metadata, kChecksumsKey));
  if (static_cast<int64_t>(checksums_.size()) == chunks * kDigits)
    return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(kChecksumsKey, " is not of ", chunks, " chunks"));
}

absl::Status CheckpointFile::DecodeBlocks(SafetensorsMetadata& metadata) {
  const std::string text = Take(metadata, kBlocksKey).value_or("{}");
  const ReadJson json =
      ReadJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return absl::DataLossError(absl::StrCat(kBlocksKey, " is no JSON object"));
  int64_t chunk = 0;
  for (const TensorEntry& entry : header_.entries) {
    Block block{.name = entry.name,
                .offsets = std::vector<int64_t>(entry.shape.size(), 0),
                .shape = entry.shape,
                .whole_shape = entry.shape,
                .dtype = entry.dtype,
                .entry = blocks_.size(),
                .first_chunk = chunk};
    if (json.contains(entry.name) && !TakeBlock(json[entry.name], block)) {
      return absl::DataLossError(
          absl::StrCat(kBlocksKey, " does not say which block the entry ",
                       absl::CHexEscape(entry.name), " is"));
    }
    blocks_.push_back(std::move(block));
    chunk += ChunksIn(entry.end - entry.begin);
  }
  return absl::OkStatus();
}

absl::StatusOr<torch::Tensor> CheckpointFile::ReadRows(const Block& block,
                                                       int64_t begin,
                                                       int64_t end) {
  const TensorEntry& entry = header_.entries[block.entry];
  const int64_t size = entry.end - entry.begin;
  std::vector<int64_t> shape = entry.shape;
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const int64_t row_bytes = rows == 0 ? 0 : size / rows;
  if (!shape.empty()) shape[0] = end - begin;
  // Extend to the boundaries of chunks.
  const int64_t first = begin * row_bytes, last = end * row_bytes;
  const int64_t from = first / kChunkBytes * kChunkBytes;
  const int64_t to = std::min(ChunksIn(last) * kChunkBytes, size);
  ASSIGN_OR_RETURN(const torch::Tensor bytes,
                   LoadSafetensorsBytes(path_, header_, entry.begin + from,
                                        entry.begin + to));
  RETURN_IF_ERROR(CheckChunks(bytes, block.first_chunk + from / kChunkBytes));
  return bytes.narrow(0, first - from, last - first)
      .view(entry.dtype)
      .view(shape);
}

absl::Status CheckpointFile::CheckChunks(const torch::Tensor& bytes,
                                         int64_t first) const {
  const std::string found = ChecksumsOf(bytes);
  const absl::Status same =
      CheckSame(found, checksums_.substr(first * kDigits, found.size()));
  return same.ok() ? same : Of(path_, same);
}

}  // namespace rankwise
