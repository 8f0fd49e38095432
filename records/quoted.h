// A piece of a user's file or flag as an error message quotes it.

#ifndef RECORDS_QUOTED_H_
#define RECORDS_QUOTED_H_

#include <string>

#include "absl/strings/string_view.h"

namespace rankwise {

// In double quotes: the first 40 bytes, with "..." where there are more, and
// escapes for those that are not printable ASCII, so that no file can write
// control sequences to a terminal: "0F0\x1b[2J".
std::string Quoted(absl::string_view text);

}  // namespace rankwise

#endif  // RECORDS_QUOTED_H_
