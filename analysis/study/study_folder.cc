#include "analysis/study/study_folder.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> RecordFiles(const std::string& dir) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (entry.path().extension() == ".jsonl") {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

absl::Status PrepareStudyFolder(const std::string& dir) {
  std::error_code error;
  fs::create_directories(fs::path(dir) / "logs", error);
  if (error || access(dir.c_str(), W_OK) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "--output_dir=", dir, ": cannot write there: ",
        error ? error.message() : std::string("permission denied")));
  }
  if (RecordFiles(dir).empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("--output_dir=", dir,
                   ": holds records already; choose another folder, or print "
                   "the table of this one by --from=",
                   dir));
}

absl::StatusOr<std::vector<RunTrace>> LoadStudyFolder(const std::string& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    return absl::NotFoundError(
        absl::StrCat("--from=", dir, ": no such folder"));
  }
  const std::vector<std::string> files = RecordFiles(dir);
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrCat("--from=", dir, ": holds no *.jsonl"));
  }
  std::vector<RunTrace> runs;
  for (const std::string& file : files) {
    absl::StatusOr<std::vector<RunTrace>> more = LoadRuns(file);
    if (!more.ok()) return more.status();
    for (RunTrace& run : *more) runs.push_back(std::move(run));
  }
  return runs;
}

std::string LastLines(const std::string& path, int count) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  std::string line;
  while (std::getline(file, line)) {
    lines.push_back(line);
    if (static_cast<int>(lines.size()) > count) lines.pop_front();
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace rankwise
