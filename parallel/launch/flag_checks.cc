#include "parallel/launch/flag_checks.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_join.h"

namespace rankwise {

void FlagChecks::OneOf(const char* name, const std::string& value,
                       const std::vector<std::string>& allowed) {
  for (const std::string& choice : allowed) {
    if (value == choice) return;
  }
  Complain(absl::StrCat("--", name, "=", value, ": must be one of ",
                        absl::StrJoin(allowed, ", ")));
}

void FlagChecks::ParentExists(const char* name, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path parent =
      std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (std::filesystem::is_directory(parent, ignored)) return;
  Complain(absl::StrCat(
      "--", name, "=", path, ": ",
      std::filesystem::exists(parent, ignored)
          ? absl::StrCat(parent.string(), " is not a folder")
          : absl::StrCat("the folder ", parent.string(), " does not exist")));
}

void FlagChecks::FolderOrNew(const char* name, const std::string& path) {
  ParentExists(name, path);
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored) ||
      std::filesystem::is_directory(path, ignored)) {
    return;
  }
  Complain(absl::StrCat("--", name, "=", path, ": is not a folder"));
}

}  // namespace rankwise
