#include "parallel/pipeline/replace_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace rankwise {

absl::Status ReplaceFile(const std::string& path,
                         const std::function<void(std::ostream&)>& write) {
  const std::string temporary = absl::StrCat(path, ".", ::getpid(), ".tmp");
  errno = 0;
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  if (out) {
    write(out);
    out.close();
  }
  if (out && std::rename(temporary.c_str(), path.c_str()) == 0)
    return absl::OkStatus();
  const int error = errno == 0 ? EIO : errno;
  std::remove(temporary.c_str());
  return absl::ErrnoToStatus(
      error, absl::StrCat("writing ", path,
                          error == ENOENT ? " (its folder must exist)" : ""));
}

}  // namespace rankwise
