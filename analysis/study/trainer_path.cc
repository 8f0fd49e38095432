#include "analysis/study/trainer_path.h"

#include <unistd.h>

#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

// RUNFILES/WORKSPACE/trainers for every workspace: its name is not ours to
// know.
std::vector<fs::path> InRunfiles(const fs::path& runfiles) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& workspace : fs::directory_iterator(runfiles, error)) {
    folders.push_back(workspace.path() / "trainers");
  }
  return folders;
}

}  // namespace

absl::StatusOr<std::string> FindTrainerDir(const std::string& own_path) {
  const fs::path own = fs::absolute(own_path);
  std::vector<fs::path> candidates = InRunfiles(own.string() + ".runfiles");
  // The binary is OUTPUTS/analysis/study/study, or its link in the runfiles.
  candidates.push_back(own.parent_path().parent_path().parent_path() /
                       "trainers");
  for (const fs::path& folder : candidates) {
    std::error_code error;
    if (fs::exists(folder / "ddp", error)) return folder.string();
  }
  return absl::NotFoundError(absl::StrCat(
      "the trainers were not found near ", own.string(),
      ": start the study by `bazel run //:study`, or pass --trainer_dir"));
}

absl::StatusOr<std::string> TrainerPath(const std::string& dir,
                                        const std::string& trainer) {
  const fs::path path = fs::path(dir) / trainer;
  std::error_code error;
  if (fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0) {
    return path.string();
  }
  return absl::NotFoundError(
      absl::StrCat("the trainer ", path.string(),
                   " is not an executable file; --trainer_dir names its "
                   "folder"));
}

}  // namespace rankwise
