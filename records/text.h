// Formatting and parsing of numbers, byte counts and CSV fields.
#ifndef RANKWISE_RECORDS_TEXT_H_
#define RANKWISE_RECORDS_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise {

// Returns "1 rank", "2 ranks".
std::string Counted(int64_t number, absl::string_view thing);

// Lists the divisors of `number` (at least 1): "1", "1, 2 or 4".
std::string DivisorsOf(int64_t number);

// Parses "8", "4K", "64MiB", "1G" as bytes, with the powers of 1024 of
// nccl-tests. InvalidArgument, with the valid forms, for anything else.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// Parses "8,4K,1M"; keeps the order.
absl::StatusOr<std::vector<int64_t>> ParseByteList(absl::string_view text);

// Returns "8 B", "4 KiB", "1.5 MiB".
std::string FormatBytes(int64_t bytes);

// Returns a CSV field, quoted if RFC 4180 requires it.
std::string CsvField(const std::string& text);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_TEXT_H_
