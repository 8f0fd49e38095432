// Files that are there whole or not at all.

#ifndef ANALYSIS_WRITE_FILE_H_
#define ANALYSIS_WRITE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rankwise {

// `text` becomes the content of `path`: written beside it, brought to the disk
// and renamed. The error names the file and the reason; what was there before
// is then untouched.
absl::Status WriteFile(const std::string& path, absl::string_view text);

}  // namespace rankwise

#endif  // ANALYSIS_WRITE_FILE_H_
