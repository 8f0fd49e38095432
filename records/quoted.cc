#include "records/quoted.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace rankwise {

std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 40;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kLongest)),
                      text.size() > kLongest ? "..." : "", "\"");
}

}  // namespace rankwise
