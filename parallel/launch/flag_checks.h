// Checks of flags that name the flag as it is typed.
#ifndef RANKWISE_PARALLEL_LAUNCH_FLAG_CHECKS_H_
#define RANKWISE_PARALLEL_LAUNCH_FLAG_CHECKS_H_

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {

// Keeps the first complaint.
class FlagChecks {
 public:
  template <typename T>
  void InRange(const char* name, T value, T low,
               T high = std::numeric_limits<T>::max()) {
    if (value >= low && value <= high) return;
    std::string allowed = high == std::numeric_limits<T>::max()
                              ? absl::StrCat("at least ", low)
                              : absl::StrCat("between ", low, " and ", high);
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) allowed = absl::StrCat("finite and ", allowed);
    }
    Complain(absl::StrCat("--", name, "=", value, ": must be ", allowed));
  }

  void OneOf(const char* name, const std::string& value,
             const std::vector<std::string>& allowed);

  // The folder of a file that will be written must be there before hours are
  // spent. An empty path is no file.
  void ParentExists(const char* name, const std::string& path);

  // The same for a folder that will be made unless it is there.
  void FolderOrNew(const char* name, const std::string& path);

  void Complain(const std::string& message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
  }

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_FLAG_CHECKS_H_
