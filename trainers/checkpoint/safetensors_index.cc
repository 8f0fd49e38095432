#include "trainers/checkpoint/safetensors_index.h"

#include <cstdint>
#include <filesystem>
#include <regex>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/durable_file.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

constexpr char kIndexName[] = "model.safetensors.index.json";

// Adds a file's tensors to the index; returns their bytes.
absl::StatusOr<int64_t> AddFile(const fs::path& dir, const std::string& file,
                                nlohmann::json& weight_map) {
  ASSIGN_OR_RETURN(const auto header, LoadSafetensorsHeader(dir / file));
  int64_t bytes = 0;
  for (const TensorEntry& entry : header.entries) {
    bytes += entry.end - entry.begin;
    const auto [known, is_new] = weight_map.emplace(entry.name, file);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the tensor '", entry.name, "' is both in ", known->get<std::string>(),
        " and in ", file, " of ", dir.string()));
  }
  return bytes;
}

}  // namespace

std::string SafetensorsShardName(int shard, int num_shards) {
  if (num_shards == 1) return "model.safetensors";
  return absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1,
                         num_shards);
}

absl::Status SaveSafetensorsIndex(const std::string& dir, int num_shards) {
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_bytes = 0;
  for (int shard = 0; shard < num_shards; ++shard) {
    ASSIGN_OR_RETURN(
        const auto bytes,
        AddFile(dir, SafetensorsShardName(shard, num_shards), weight_map));
    total_bytes += bytes;
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {"weight_map", std::move(weight_map)}};
  const std::string text = index.dump(/*indent=*/2) + "\n";
  ASSIGN_OR_RETURN(auto file, DurableFile::Create(fs::path(dir) / kIndexName));
  RETURN_IF_ERROR(file->Append(text.data(), text.size()));
  return file->Commit();
}

void RemoveOtherExports(const std::string& dir, int num_shards) {
  static const auto* const kExport = new std::regex(
      R"(model(-\d{5}-of-(\d{5}))?\.safetensors(\.index\.json)?)");
  std::error_code ignored;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename().string();
    std::smatch match;
    if (!std::regex_match(name, match, *kExport)) continue;
    const bool of_one = !match[1].matched && !match[3].matched;
    const bool ours = of_one             ? num_shards == 1
                      : match[1].matched ? std::stoi(match[2]) == num_shards
                                         : num_shards > 1;
    if (!ours) others.push_back(entry.path());
  }
  for (const fs::path& path : others) fs::remove(path, ignored);
}

}  // namespace rankwise
