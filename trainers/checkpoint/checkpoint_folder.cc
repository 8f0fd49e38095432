#include "trainers/checkpoint/checkpoint_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

constexpr char kSupersededSuffix[] = ".superseded";
constexpr char kIndexName[] = "model.safetensors.index.json";

absl::Status FolderError(absl::string_view attempted, const std::string& path,
                         const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot ", attempted, " ", path));
}

// Returns the names in `dir`; empty if it does not exist.
absl::StatusOr<std::vector<std::string>> ListNames(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator item(dir, error);
  for (; !error && item != fs::directory_iterator(); item.increment(error)) {
    names.push_back(item->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return FolderError("read the checkpoint folder", dir, error);
  }
  return names;
}

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

absl::Status MakeCheckpointFolder(const std::string& dir) {
  std::error_code error;
  fs::create_directory(dir, error);
  if (!error && access(dir.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--checkpoint_dir=", dir, ": cannot be written to: ", error.message()));
}

std::string FormatCheckpointName(const CheckpointName& name) {
  const std::string shard =
      name.num_shards == 1
          ? ""
          : absl::StrCat(".shard_", name.shard, "_of_", name.num_shards);
  return absl::StrFormat("step_%08d%s.safetensors", name.step, shard);
}

std::optional<CheckpointName> ParseCheckpointName(const std::string& text) {
  static const auto* const kPattern =
      new std::regex(R"(step_(\d+)(\.shard_(\d+)_of_(\d+))?\.safetensors)");
  std::smatch match;
  CheckpointName name;
  if (!std::regex_match(text, match, *kPattern) ||
      !absl::SimpleAtoi(match[1].str(), &name.step)) {
    return std::nullopt;
  }
  if (!match[2].matched) return name;
  if (!absl::SimpleAtoi(match[3].str(), &name.shard) ||
      !absl::SimpleAtoi(match[4].str(), &name.num_shards) ||
      name.num_shards < 2 || name.shard >= name.num_shards) {
    return std::nullopt;
  }
  return name;
}

std::string CheckpointSet::MissingName() const {
  int shard = 0;
  while (paths.count(shard) > 0) ++shard;
  return FormatCheckpointName({step, shard, num_shards});
}

absl::StatusOr<std::vector<CheckpointSet>> ListCheckpointSets(
    const std::string& dir) {
  ASSIGN_OR_RETURN(const auto names, ListNames(dir));
  std::map<std::pair<int64_t, int>, CheckpointSet> sets;
  for (const std::string& text : names) {
    const auto name = ParseCheckpointName(text);
    if (!name) continue;
    CheckpointSet& set = sets[{-name->step, name->num_shards}];
    set.step = name->step;
    set.num_shards = name->num_shards;
    set.paths.emplace(name->shard, fs::path(dir) / text);
  }
  std::vector<CheckpointSet> newest_first;
  for (auto& [key, set] : sets) newest_first.push_back(std::move(set));
  return newest_first;
}

absl::Status RemoveLeftovers(const std::string& dir, int64_t last_step) {
  ASSIGN_OR_RETURN(const auto names, ListNames(dir));
  // Older versions wrote no process id.
  static const auto* const kTemporary = new std::regex(R"((.*?)(\.\d+)?\.tmp)");
  for (const std::string& text : names) {
    std::smatch match;
    if (!std::regex_match(text, match, *kTemporary)) continue;
    const auto name = ParseCheckpointName(match[1]);
    if (!name.has_value() || name->step > last_step) continue;
    std::error_code error;
    fs::remove(fs::path(dir) / text, error);
    if (error) return FolderError("remove the leftover file", text, error);
  }
  return absl::OkStatus();
}

absl::Status RemoveSet(const CheckpointSet& set) {
  for (const auto& [shard, path] : set.paths) {
    std::error_code error;
    fs::remove(path, error);
    if (error) return FolderError("remove the old checkpoint", path, error);
  }
  return absl::OkStatus();
}

std::vector<CheckpointSet> SetsToRemove(const std::vector<CheckpointSet>& sets,
                                        int64_t saved_step, int num_shards,
                                        int keep) {
  std::set<int64_t> kept = {saved_step};
  std::vector<CheckpointSet> removed;
  for (const CheckpointSet& set : sets) {
    if (set.step > saved_step) continue;
    const bool saved = set.step == saved_step && set.num_shards == num_shards;
    const bool newest =
        kept.size() < static_cast<size_t>(keep) || kept.count(set.step) > 0;
    if (saved || (set.complete() && newest)) {
      kept.insert(set.step);
    } else {
      removed.push_back(set);
    }
  }
  return removed;
}

absl::Status SupersedeSet(const CheckpointSet& set) {
  for (const auto& [shard, path] : set.paths) {
    std::error_code error;
    fs::rename(path, path + kSupersededSuffix, error);
    if (error && error != std::errc::no_such_file_or_directory) {
      return FolderError("set aside the later checkpoint", path, error);
    }
  }
  return absl::OkStatus();
}

absl::Status SetAsideCheckpoints(const std::string& dir) {
  ASSIGN_OR_RETURN(const auto sets, ListCheckpointSets(dir));
  for (const CheckpointSet& set : sets) {
    RETURN_IF_ERROR(SupersedeSet(set));
  }
  if (sets.empty()) return absl::OkStatus();
  std::printf(
      "%s: this run starts from the beginning; existing checkpoints are "
      "renamed %s*, so that no restart continues from them (--resume would "
      "continue from them)\n",
      dir.c_str(), absl::StrCat("*", kSupersededSuffix).c_str());
  return absl::OkStatus();
}

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
  return ReplaceFile(fs::path(dir) / kIndexName,
                     index.dump(/*indent=*/2) + "\n");
}

void RemoveOtherExports(const std::string& dir, int num_shards) {
  static const auto* const kExport = new std::regex(
      R"(model(-\d{5}-of-(\d{5}))?\.safetensors(\.index\.json)?(\.\d+\.tmp)?)");
  std::error_code ignored;
  std::vector<fs::path> others;
  for (fs::directory_iterator entry(dir, ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    std::smatch match;
    if (!std::regex_match(name, match, *kExport)) continue;
    const bool of_one = !match[1].matched && !match[3].matched;
    const bool torn = match[4].matched;  // left by a killed save
    const bool ours = torn               ? false
                      : of_one           ? num_shards == 1
                      : match[1].matched ? std::stoi(match[2]) == num_shards
                                         : num_shards > 1;
    if (!ours) others.push_back(entry->path());
  }
  for (const fs::path& path : others) fs::remove(path, ignored);
}

}  // namespace rankwise
