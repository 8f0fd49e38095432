#include "analysis/study/study_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

constexpr char kDurations[] = "durations.csv";

}  // namespace

absl::Status PrepareStudyFolder(const std::string& dir, FolderUse use) {
  std::error_code error;
  fs::create_directories(fs::path(dir) / "logs", error);
  if (error || access(dir.c_str(), W_OK) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "--output_dir=", dir, ": cannot write there: ",
        error ? error.message() : std::string("permission denied")));
  }
  const bool holds_records =
      RecordFilesIn(dir).ok() || RecordFilesIn(dir + "/probes").ok();
  if (use == FolderUse::kResume || !holds_records) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "--output_dir=", dir,
      ": holds records already; choose another folder, go on with the study "
      "in this one by --resume, or read it by --from=",
      dir));
}

absl::StatusOr<std::vector<RunTrace>> LoadStudyFolder(const std::string& dir) {
  if (std::error_code error; fs::is_regular_file(dir, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--from=", dir, ": is a file; expected the folder of a study"));
  }
  const absl::StatusOr<std::vector<std::string>> files = RecordFilesIn(dir);
  if (files.ok()) return LoadRuns(dir);
  return absl::NotFoundError(absl::StrCat("--from=", files.status().message()));
}

void AddDuration(const std::string& dir, const std::string& run,
                 absl::Duration elapsed) {
  std::ofstream file(absl::StrCat(dir, "/", kDurations), std::ios::app);
  file << run << "," << absl::ToDoubleSeconds(elapsed) << "\n";
}

std::map<std::string, double> ReadDurations(const std::string& dir) {
  std::map<std::string, double> durations;
  std::ifstream file(absl::StrCat(dir, "/", kDurations));
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, ',');
    double seconds = 0;
    if (parts.size() == 2 && absl::SimpleAtod(parts[1], &seconds)) {
      durations[parts[0]] = seconds;
    }
  }
  return durations;
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

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& dir) {
  FolderLock lock(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.folder_ < 0) return absl::ErrnoToStatus(errno, dir);
  if (flock(lock.folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--output_dir=", dir,
        ": another study is running in this folder; wait until it has ended, "
        "or choose another folder"));
  }
  return lock;
}

FolderLock::FolderLock(FolderLock&& other)
    : folder_(std::exchange(other.folder_, -1)) {}

FolderLock::~FolderLock() {
  if (folder_ >= 0) close(folder_);
}

}  // namespace rankwise
