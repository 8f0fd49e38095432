// Converts between records and lines of JSON. Grammar: docs/records.md.
#ifndef RANKWISE_RECORDS_RECORD_JSON_H_
#define RANKWISE_RECORDS_RECORD_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "records/record.h"

namespace rankwise {

// Returns the record as one line of JSON, `kind` first, without a newline.
// Doubles read back bit-equal; NaN and infinities become the strings "NaN",
// "Infinity" and "-Infinity". Bytes that are not UTF-8 become U+FFFD.
std::string ToJsonLine(const Record& record);

// Appends the same text to `*out`; does not allocate if its capacity suffices.
void AppendJsonLine(const Record& record, std::string* out);

// Parses one line; skips unknown fields. Errors:
//   InvalidArgument     not JSON, not an object, no kind, or a field that is
//                       missing, of the wrong type or out of range
//   NotFound            a kind that this version does not define
// The message names the field; the caller adds file and line.
absl::StatusOr<Record> ParseRecord(absl::string_view line);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RECORD_JSON_H_
