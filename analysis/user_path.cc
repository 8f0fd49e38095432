#include "analysis/user_path.h"

#include <cstdlib>
#include <filesystem>

namespace rankwise {

std::string UserPath(const std::string& path) {
  if (path.empty()) return "";
  const char* typed_in = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path base = typed_in != nullptr
                                         ? std::filesystem::path(typed_in)
                                         : std::filesystem::current_path();
  return (base / path).lexically_normal().string();
}

}  // namespace rankwise
