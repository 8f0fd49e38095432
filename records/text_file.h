// Text files written by users: flags, schedules, traffic matrices, clusters.
#ifndef RANKWISE_RECORDS_TEXT_FILE_H_
#define RANKWISE_RECORDS_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace rankwise {

// Returns the content of a text file of at most 1 GiB, without a byte-order
// mark and with "\n" in place of "\r\n". NotFound if it does not exist;
// InvalidArgument for a folder, a larger file, or UTF-16. Messages give the
// reason; the caller adds the file's name.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_TEXT_FILE_H_
