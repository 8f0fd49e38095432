#include "analysis/study/study_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "records/command_line.h"
#include "records/text_file.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

constexpr char kDurations[] = "durations.csv";

// Limit of a flagfile's lines in bytes, as messages quote them.
constexpr size_t kLongestLine = 4096;

// Keys of StudyDescription::origin that --resume compares, with their names in
// messages.
constexpr std::pair<const char*, const char*> kCompared[] = {
    {"source_hash", "the source's hash"},
    {"schema_version", "the records' version"},
    {"cpu_model", "the CPU"},
    {"cores", "the number of cores"}};

// Returns "--repetitions is 3, and was 5", in the order of the flags' names.
std::vector<std::string> FlagDifferences(
    const std::map<std::string, std::string>& before,
    const std::map<std::string, std::string>& now) {
  std::vector<std::string> differences;
  for (const auto& [name, value] : now) {
    const auto was = before.find(name);
    if (was == before.end() || was->second == value) continue;
    differences.push_back(absl::StrCat(
        "--", name, " is ", value.empty() ? "empty" : value, ", and was ",
        was->second.empty() ? "empty" : was->second));
  }
  return differences;
}

// Returns differences that --force permits. If the source is unknown, the runs'
// records decide.
std::vector<std::string> OriginDifferences(const StudyDescription& before,
                                           const StudyDescription& now) {
  std::vector<std::string> differences;
  for (const auto& [key, name] : kCompared) {
    const auto was = before.origin.find(key), is = now.origin.find(key);
    if (was == before.origin.end() || was->second.empty() ||
        is == now.origin.end() || is->second.empty() || *was == *is) {
      continue;
    }
    differences.push_back(
        absl::StrCat(name, " is ", is->second, ", and was ", was->second));
  }
  return differences;
}

bool HasControlCharacter(absl::string_view text) {
  return absl::c_any_of(
      text, [](char c) { return absl::ascii_iscntrl(c) && c != '\t'; });
}

// Parses a line; returns false if it is not a line of a flagfile.
bool AddLine(absl::string_view line, StudyDescription* description) {
  line = absl::StripLeadingAsciiWhitespace(line);
  if (absl::ConsumePrefix(&line, "#")) {
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    description->origin[std::string(absl::StripAsciiWhitespace(entry.first))] =
        std::string(absl::StripAsciiWhitespace(entry.second));
    return true;
  }
  if (line.empty()) return true;
  if (!absl::ConsumePrefix(&line, "--") || !absl::StrContains(line, '=')) {
    return false;
  }
  const std::pair<std::string, std::string> flag =
      absl::StrSplit(line, absl::MaxSplits('=', 1));
  description->flags[flag.first] = flag.second;
  return true;
}

}  // namespace

std::string StudyFilePath(const std::string& dir) {
  return absl::StrCat(dir, "/study.flags");
}

absl::StatusOr<std::string> FlagfileText(const StudyDescription& description) {
  std::string text;
  for (const auto& [key, value] : description.origin) {
    absl::StrAppend(&text, "# ", key, ": ", value, "\n");
  }
  for (const auto& [name, value] : description.flags) {
    if (HasControlCharacter(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", name,
          ": its value holds a line break or another control character, and "
          "study.flags could not hold it: use another name"));
    }
    absl::StrAppend(&text, "--", name, "=", value, "\n");
  }
  return text;
}

absl::StatusOr<StudyDescription> ReadFlagfile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": ", text.status().message()));
  }
  StudyDescription description;
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++number;
    if (HasControlCharacter(line)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", number, ": holds a control character: ", Quoted(line)));
    }
    if (line.size() > kLongestLine) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": has ", line.size(),
                       " bytes, and a flag has at most ", kLongestLine));
    }
    if (AddLine(line, &description)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", number, ": expected --flag=value"));
  }
  return description;
}

absl::Status CheckSameStudy(const StudyDescription& folder,
                            const StudyDescription& now, bool force) {
  const std::vector<std::string> flags =
      FlagDifferences(folder.flags, now.flags);
  if (!flags.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--resume: this is another study than the one in the folder: ",
        absl::StrJoin(flags, "; "),
        ": leave these flags out, or choose another --output_dir"));
  }
  const std::vector<std::string> origin = OriginDifferences(folder, now);
  if (force || origin.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--resume: the study was started differently: ",
                   absl::StrJoin(origin, "; "),
                   ": start another study, or pass --force to mix the two"));
}

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

absl::Status SetFlags(const StudyDescription& description) {
  for (const auto& [name, value] : description.flags) {
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    if (flag == nullptr && value.empty()) continue;
    std::string error = "there is no such flag";
    if (flag != nullptr && flag->ParseFrom(value, &error)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("study.flags: --", name, "=", value, ": ", error));
  }
  return absl::OkStatus();
}

std::map<std::string, double> ReadDurations(const std::string& dir) {
  std::map<std::string, double> durations;
  std::ifstream file(absl::StrCat(dir, "/", kDurations));
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> parts = absl::StrSplit(line, ',');
    double seconds = 0;
    if (parts.size() == 2 && absl::SimpleAtod(parts[1], &seconds) &&
        std::isfinite(seconds) && seconds >= 0) {
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

absl::StatusOr<std::shared_ptr<void>> LockFolder(const std::string& dir) {
  const int folder = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return absl::ErrnoToStatus(errno, dir);
  std::shared_ptr<void> lock(nullptr, [folder](void*) { close(folder); });
  if (flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--output_dir=", dir,
        ": another study is running in this folder; wait until it has ended, "
        "or choose another folder"));
  }
  return lock;
}

}  // namespace rankwise
