// Atomic replacement of files.
#ifndef RANKWISE_RECORDS_REPLACE_FILE_H_
#define RANKWISE_RECORDS_REPLACE_FILE_H_

#include <functional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rankwise {

// Replaces the content of `path` by the output of `write`: writes
// `<path>.<process id>.tmp` next to it and renames that file, so readers never
// see a partial file, even after a crash or on a full disk. Blocks until
// content and name are durable. Follows symbolic links. Rejects existing paths
// that are not regular files. The error names the file and the reason; the old
// content is then intact, unless only the last step, syncing the folder,
// failed.
absl::Status ReplaceFile(const std::string& path,
                         const std::function<void(std::ostream&)>& write);

// Replaces the content of `path` by `text`.
absl::Status ReplaceFile(const std::string& path, absl::string_view text);

// Returns the error that ReplaceFile would return, as far as can be determined
// without writing.
absl::Status CheckReplaceable(const std::string& path);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_REPLACE_FILE_H_
