#include "analysis/study/command_line.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/study/study_flags.h"
#include "analysis/study/study_folder.h"
#include "records/parse_flags.h"
#include "records/user_path.h"

namespace rankwise {
namespace {

absl::Status SetFlags(const ConfigFile& config, const std::string& source) {
  for (const auto& [name, value] : config.values) {
    std::string error;
    if (absl::FindCommandLineFlag(name)->ParseFrom(value, &error)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": \"", name, "\": ", value, ": ", error));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ConfigFile>> ReadFolder() {
  const std::string from = absl::GetFlag(FLAGS_from);
  const bool resume = absl::GetFlag(FLAGS_resume);
  std::string dir = resume ? absl::GetFlag(FLAGS_output_dir) : from;
  if (resume && !from.empty()) {
    return absl::InvalidArgumentError(
        "--from runs nothing, and --resume does: pass one of the two");
  }
  if (resume && dir.empty()) {
    return absl::InvalidArgumentError(
        "--resume: pass --output_dir too, the folder of the study to go on "
        "with");
  }
  if (dir.empty()) return std::nullopt;
  dir = UserPath(dir);
  std::error_code error;
  if (std::filesystem::exists(StudyFilePath(dir), error)) {
    auto file = ReadConfigFile(StudyFilePath(dir), StudyKeys());
    if (!file.ok()) return file.status();
    return *std::move(file);
  }
  if (!resume) return std::nullopt;  // of a version that wrote none
  return absl::NotFoundError(absl::StrCat(
      "--resume: ", dir,
      " holds no study.json: no study was begun there, or an earlier version "
      "did; choose another folder, or read it by --from"));
}

}  // namespace

absl::StatusOr<CommandLine> ParseStudyCommandLine(int argc, char** argv) {
  CommandLine line;
  line.positional = ParseFlags(argc, argv);
  auto folder = ReadFolder();
  if (!folder.ok()) return folder.status();
  line.folder = *std::move(folder);
  absl::Status status;
  if (line.folder.has_value()) status = SetFlags(*line.folder, "study.json");
  const std::string config = absl::GetFlag(FLAGS_config);
  if (status.ok() && !config.empty()) {
    const std::string path = UserPath(config);
    const auto file = ReadConfigFile(path, StudyKeys());
    status = file.ok() ? SetFlags(*file, path)
                       : absl::InvalidArgumentError(absl::StrCat(
                             "--config=", file.status().message()));
  }
  if (!status.ok()) return status;
  ParseFlags(argc, argv);  // once more: it wins
  return line;
}

}  // namespace rankwise
