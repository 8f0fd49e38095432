// Checks the keys of JSON objects that people write.
#ifndef RANKWISE_ANALYSIS_TEXT_JSON_KEYS_H_
#define RANKWISE_ANALYSIS_TEXT_JSON_KEYS_H_

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "records/command_line.h"

namespace rankwise {

// Throws Json::other_error, naming the first key of the object `json` that is
// not among `known`. A value that is not an object passes. A template because
// the library's JSON_DIAGNOSTICS changes its types.
template <typename Json>
void RefuseUnknownKeys(const Json& json,
                       std::initializer_list<absl::string_view> known) {
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw Json::other_error::create(
        599,
        absl::StrCat("has the unknown key ", Quoted(key), "; known are ",
                     absl::StrJoin(known, ", ")),
        &json);
  }
}

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_TEXT_JSON_KEYS_H_
