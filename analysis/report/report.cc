#include "analysis/report/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "analysis/report/report_data.h"
#include "analysis/report/report_page.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

// The text of a script that can stand inside a page.
absl::StatusOr<std::string> ReadPlotly(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)),
                         std::istreambuf_iterator<char>());
  if (!in || text.empty()) {
    return absl::ErrnoToStatus(
        errno == 0 ? EIO : errno,
        absl::StrCat("reading ", path,
                     ", which draws the report: it should be plotly.min.js"));
  }
  if (!absl::StrContains(text, "Plotly") ||
      absl::StrContains(absl::AsciiStrToLower(text), "</script")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected plotly.min.js, as @plotly//:plotly_js brings it"));
  }
  return text;
}

// Leaves errno at what went wrong.
bool WriteAndSync(int file, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return ::fsync(file) == 0;
}

// Beside `path`, then renamed: a reader never sees a part.
absl::Status WriteWhole(const std::string& path, absl::string_view text) {
  const std::string temporary = absl::StrCat(path, ".", ::getpid(), ".tmp");
  const int file =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool written = file >= 0 && WriteAndSync(file, text);
  int error = errno;
  if (file >= 0 && ::close(file) != 0 && written) {
    written = false;
    error = errno;
  }
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  if (written) error = errno;
  if (file >= 0) ::unlink(temporary.c_str());
  return absl::ErrnoToStatus(
      error, absl::StrCat("writing the report ", path,
                          error == ENOENT ? " (its folder must exist)" : ""));
}

}  // namespace

absl::Status WriteReport(const Answer& answer, const ReportConfig& config,
                         const std::string& path) {
  const absl::StatusOr<std::string> plotly = ReadPlotly(config.plotly_js);
  if (!plotly.ok()) return plotly.status();
  nlohmann::json data = ReportData(answer);
  data["command"] = config.command;
  return WriteWhole(path, ReportPage(config.title, data, *plotly));
}

}  // namespace rankwise
