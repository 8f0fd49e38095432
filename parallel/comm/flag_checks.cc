#include "parallel/comm/flag_checks.h"

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
  if (!std::filesystem::is_directory(parent, ignored)) {
    Complain(absl::StrCat("--", name, "=", path, ": the folder ",
                          parent.string(), " does not exist"));
  }
}

}  // namespace rankwise
