#include "records/text_file.h"

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace rankwise {
namespace {

constexpr size_t kLargestBytes = size_t{1} << 30;

absl::StatusOr<std::string> ReadBytes(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return absl::InvalidArgumentError("is a folder, not a file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // operator<< of the stream buffer would set failbit both for a read error and
  // for an empty file.
  for (char part[1 << 16]; file.good();) {
    file.read(part, sizeof(part));
    text.append(part, static_cast<size_t>(file.gcount()));
    if (text.size() > kLargestBytes)
      return absl::InvalidArgumentError("is larger than 1 GiB");
  }
  if (file.eof()) return text;
  return absl::ErrnoToStatus(errno == 0 ? EIO : errno, "cannot be read");
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadBytes(path);
  if (!text.ok()) return text;
  if (absl::StartsWith(*text, "\xff\xfe") ||
      absl::StartsWith(*text, "\xfe\xff")) {
    return absl::InvalidArgumentError(
        "is text in UTF-16; save it again as UTF-8");
  }
  if (absl::StartsWith(*text, "\xef\xbb\xbf")) text->erase(0, 3);
  if (absl::StrContains(*text, '\r'))
    absl::StrReplaceAll({{"\r\n", "\n"}}, &*text);
  return text;
}

}  // namespace rankwise
