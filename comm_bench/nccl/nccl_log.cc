#include "comm_bench/nccl/nccl_log.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <regex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// See nccl_log.h for the format.
std::optional<NcclChoices> ParseLine(const std::string& line) {
  static const auto& call = *new std::regex(
      R"( NCCL INFO \S.* \d+ Bytes -> (?:Algo (\S+) proto (\S+)|Kernel (\S+)))");
  std::smatch found;
  if (!std::regex_search(line, found, call)) return std::nullopt;
  if (found[3].matched) return NcclChoices{"SYMMETRIC", found[3]};
  return NcclChoices{found[1], found[2]};
}

void AddOnce(const std::string& name, std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    names.push_back(name);
  }
}

// Only warnings, which go to the file and from there to stderr. With an unknown
// value NCCL would read its variables at every line.
constexpr char kQuiet[] = "WARN";
constexpr char kTelling[] = "INFO";

// Creates an empty file.
absl::StatusOr<std::string> MakeFile() {
  const char* const folder = std::getenv("TMPDIR");
  std::string path =
      absl::StrCat(folder == nullptr || *folder == '\0' ? "/tmp" : folder,
                   "/rankwise-nccl-XXXXXX");
  const int fd = ::mkstemp(path.data());
  if (fd < 0) {
    const int error = errno;
    return absl::UnavailableError(
        absl::StrCat("no file for NCCL's log: ",
                     absl::ErrnoToStatus(error, path).message()));
  }
  ::close(fd);
  return path;
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return std::string((std::istreambuf_iterator<char>(file)),
                     std::istreambuf_iterator<char>());
}

// Forwards NCCL's warnings in `log` to stderr, where NCCL would have written
// them.
void PassWarnings(const std::string& log) {
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (absl::StrContains(line, " NCCL WARN ")) std::cerr << line << "\n";
  }
}

}  // namespace

NcclChoices ParseNcclLog(absl::string_view log) {
  std::vector<std::string> algorithms, protocols;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    const auto choice = ParseLine(std::string(line));
    if (!choice) continue;
    AddOnce(choice->algorithm, algorithms);
    AddOnce(choice->protocol, protocols);
  }
  return {absl::StrJoin(algorithms, ","), absl::StrJoin(protocols, ",")};
}

const std::vector<std::string>& NcclLogSwitch::Variables() {
  static const auto* const names = new std::vector<std::string>{
      "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"};
  return *names;
}

absl::StatusOr<std::unique_ptr<NcclLogSwitch>> NcclLogSwitch::Take(
    std::function<void()> reread) {
  for (const std::string& name : Variables()) {
    if (std::getenv(name.c_str()) == nullptr) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is set, so NCCL's log is left unchanged"));
  }
  ASSIGN_OR_RETURN(std::string path, MakeFile());
  return std::unique_ptr<NcclLogSwitch>(
      new NcclLogSwitch(std::move(path), std::move(reread)));
}

NcclLogSwitch::NcclLogSwitch(std::string path, std::function<void()> reread)
    : path_(std::move(path)), reread_(std::move(reread)) {
  ::setenv("NCCL_DEBUG", kQuiet, 1);
  ::setenv("NCCL_DEBUG_SUBSYS", "TUNING", 1);
  // NCCL expands %h and %p.
  ::setenv("NCCL_DEBUG_FILE", absl::StrReplaceAll(path_, {{"%", "%%"}}).c_str(),
           1);
}

NcclLogSwitch::~NcclLogSwitch() {
  PassWarnings(Read(path_));
  ::unlink(path_.c_str());
}

void NcclLogSwitch::On() {
  PassWarnings(Read(path_));
  ::setenv("NCCL_DEBUG", kTelling, 1);
  reread_();  // NCCL empties the file when it opens it
}

std::string NcclLogSwitch::Off() {
  ::setenv("NCCL_DEBUG", kQuiet, 1);
  std::string log = Read(path_);
  PassWarnings(log);
  reread_();
  // Removes the line for the next call.
  std::ofstream(path_, std::ios::trunc);
  return log;
}

}  // namespace rankwise::comm_bench
