// Files that are there whole or not at all.
#ifndef RANKWISE_RECORDS_REPLACE_FILE_H_
#define RANKWISE_RECORDS_REPLACE_FILE_H_

#include <functional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace rankwise {

// What `write` writes becomes the content of `path`: written next to it, as
// `<path>.<process id>.tmp`, and renamed, so that a reader never sees a part,
// also after a crash or on a full disk. Blocks until the bytes and the name are
// on the disk. Of a symbolic link, the file it leads to is replaced. Refuses
// what exists and is no regular file. The error names the file and the reason;
// what was there before is then untouched, unless only the last step, making
// the new name durable, failed.
absl::Status ReplaceFile(const std::string& path,
                         const std::function<void(std::ostream&)>& write);

// With `text` as the content.
absl::Status ReplaceFile(const std::string& path, absl::string_view text);

// ReplaceFile's error, as far as it can be known without replacing anything.
absl::Status CheckReplaceable(const std::string& path);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_REPLACE_FILE_H_
