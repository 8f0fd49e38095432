#include "records/user_path.h"

#include <cstdlib>
#include <filesystem>

namespace rankwise {

std::string UserPath(const std::string& path) {
  if (path.empty()) return "";
  const char* typed_in = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path base = typed_in != nullptr
                                         ? std::filesystem::path(typed_in)
                                         : std::filesystem::current_path();
  const std::filesystem::path resolved = (base / path).lexically_normal();
  // "folder/" names the folder.
  return resolved.has_filename() ? resolved.string()
                                 : resolved.parent_path().string();
}

}  // namespace rankwise
