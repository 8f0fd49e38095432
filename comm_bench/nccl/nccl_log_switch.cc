#include "comm_bench/nccl/nccl_log_switch.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace rankwise::comm_bench {
namespace {

// Warnings only, which go to the file and from there to stderr. A value that
// NCCL does not know would make it read its variables at every line.
constexpr char kQuiet[] = "WARN";
constexpr char kTelling[] = "INFO";

// An empty file.
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

// What NCCL warns of in `log` goes to stderr, where NCCL would have written it.
void PassWarnings(const std::string& log) {
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (absl::StrContains(line, " NCCL WARN ")) std::cerr << line << "\n";
  }
}

}  // namespace

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
        absl::StrCat(name, " is set, so that NCCL's log is left as it says"));
  }
  absl::StatusOr<std::string> path = MakeFile();
  if (!path.ok()) return path.status();
  return std::unique_ptr<NcclLogSwitch>(
      new NcclLogSwitch(*std::move(path), std::move(reread)));
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
  // What another line, or none, would leave for the next time.
  std::ofstream(path_, std::ios::trunc);
  return log;
}

}  // namespace rankwise::comm_bench
