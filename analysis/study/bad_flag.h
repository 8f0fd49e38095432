#ifndef RANKWISE_ANALYSIS_STUDY_BAD_FLAG_H_
#define RANKWISE_ANALYSIS_STUDY_BAD_FLAG_H_

#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace rankwise {

// Returns InvalidArgument with the concatenated parts; control characters
// become "?".
template <typename... Parts>
absl::Status BadFlag(const Parts&... parts) {
  std::string line = absl::StrCat(parts...);
  absl::c_replace_if(line, absl::ascii_iscntrl, '?');
  return absl::InvalidArgumentError(line);
}

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_BAD_FLAG_H_
