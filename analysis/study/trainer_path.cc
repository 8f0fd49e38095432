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

bool IsExecutable(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
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
      ": start the study by `./bazelw run //:study`, or pass --trainer_dir"));
}

absl::StatusOr<std::string> TrainerPath(const std::string& dir,
                                        const std::string& trainer) {
  const fs::path path = fs::path(dir) / trainer;
  if (IsExecutable(path)) return path.string();
  return absl::NotFoundError(
      absl::StrCat("the trainer ", path.string(),
                   " is not an executable file; --trainer_dir names its "
                   "folder"));
}

absl::StatusOr<std::string> CommBenchPath(const std::string& trainer_dir) {
  const fs::path dir = fs::path(trainer_dir).lexically_normal();
  for (const fs::path& path :
       {dir / "comm_bench", dir.parent_path() / "comm_bench" / "comm_bench"}) {
    if (IsExecutable(path)) return path.string();
  }
  return absl::NotFoundError(absl::StrCat(
      "comm_bench, which measures communication, is neither in ", dir.string(),
      " nor beside it: build //comm_bench, or go without by "
      "--comm_bench=false"));
}

absl::StatusOr<std::string> FindPlotly(const std::string& own_path) {
  const fs::path path = own_path + ".runfiles/plotly/plotly.min.js";
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path.string();
  return absl::NotFoundError(absl::StrCat(
      path.string(),
      " is not there: start the study by `./bazelw run //:study`, pass "
      "--plotly_js, or go without a report by --report=false"));
}

}  // namespace rankwise
