// Numbers and fields as people and spreadsheets read them.
#ifndef RANKWISE_RECORDS_TEXT_H_
#define RANKWISE_RECORDS_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise {

// "1 rank", "2 ranks".
std::string Counted(int64_t number, absl::string_view thing);

// The divisors of `number`, which is at least 1: "1", "1, 2 or 4".
std::string DivisorsOf(int64_t number);

// "8", "4K", "64MiB", "1G": bytes, in powers of 1024 as nccl-tests counts.
// InvalidArgument for anything else, with what is allowed.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// "8,4K,1M": in the order given.
absl::StatusOr<std::vector<int64_t>> ParseByteList(absl::string_view text);

// "8 B", "4 KiB", "1.5 MiB".
std::string FormatBytes(int64_t bytes);

// A field of a CSV file, quoted where RFC 4180 says so.
std::string CsvField(const std::string& text);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_TEXT_H_
