// A record as one line of JSON, and back. The grammar is in docs/records.md.
#ifndef RANKWISE_RECORDS_RECORD_JSON_H_
#define RANKWISE_RECORDS_RECORD_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "records/record.h"

namespace rankwise {

// The record as JSON on one line, `kind` first, without a final newline.
// Doubles are written so that they read back bit-equal; NaN and the infinities
// become the strings "NaN", "Infinity" and "-Infinity". Bytes that are not
// UTF-8 are replaced by U+FFFD.
std::string ToJsonLine(const Record& record);

// Appends the same text to `*out`: no allocation once `*out` has its capacity.
void AppendJsonLine(const Record& record, std::string* out);

// Reads one line. Fields that it does not know are skipped. Errors:
//   InvalidArgument     not JSON, no object, no kind, or a field that is
//                       missing, of the wrong type or out of range
//   NotFound            a kind that this version does not know
// The message names the field; the caller adds file and line.
absl::StatusOr<Record> ParseRecord(absl::string_view line);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RECORD_JSON_H_
