#include "trainers/checkpoint/checkpoint_folder.h"

#include <filesystem>
#include <regex>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/durable_file.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

constexpr char kSupersededSuffix[] = ".superseded";

absl::Status FolderError(absl::string_view attempted, const std::string& path,
                         const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot ", attempted, " ", path));
}

// The names in `dir`; none when it does not exist.
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

}  // namespace

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
  for (const std::string& text : names) {
    if (!absl::EndsWith(text, kTemporarySuffix)) continue;
    const auto name = ParseCheckpointName(
        std::string(absl::StripSuffix(text, kTemporarySuffix)));
    if (!name.has_value() || name->step > last_step) continue;
    std::error_code error;
    fs::remove(fs::path(dir) / text, error);
    if (error) return FolderError("remove the left-over file", text, error);
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

}  // namespace rankwise
