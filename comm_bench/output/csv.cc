#include "comm_bench/output/csv.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "records/text.h"

namespace rankwise::comm_bench {
namespace {

struct Field {
  std::string name;
  std::string value;
};

std::string Digits(double number) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), number);
  return std::string(digits, end.ptr);
}

std::string IfKnown(int64_t number) {
  return number < 0 ? "" : absl::StrCat(number);
}

std::string IfPositive(double number) {
  return number > 0 ? Digits(number) : "";
}

std::vector<Field> FieldsOf(const Row& row, const CsvContext& context) {
  const CallDescription& call = row.call();
  const bool elements = !call.dtype.empty();
  const Summary& time = row.time;
  const auto seconds = [&time](double value) {
    return time.samples > 0 ? Digits(value) : "";
  };
  std::vector<Field> fields;
  for (const auto& [name, value] : context) fields.push_back({name, value});
  const std::vector<Field> own = {
      {"collective", call.collective},
      {"layer", call.layer},
      {"ranks", absl::StrJoin(call.ranks, ",")},
      {"concurrent_groups",
       IfPositive(static_cast<double>(call.concurrent_groups))},
      {"bytes", elements ? absl::StrCat(call.bytes) : ""},
      {"count", elements ? absl::StrCat(call.count) : ""},
      {"dtype", call.dtype},
      {"op", call.op},
      {"root", IfKnown(call.root)},
      {"in_place", elements ? (call.in_place ? "true" : "false") : ""},
      {"timing", call.timing},
      {"cuda_graph", call.graph ? "true" : "false"},
      {"registered", call.registered ? "true" : "false"},
      {"algorithm", call.algorithm},
      {"protocol", call.protocol},
      {"samples", absl::StrCat(time.samples)},
      {"late", absl::StrCat(time.late)},
      {"min_seconds", seconds(time.min)},
      {"median_seconds", seconds(time.median)},
      {"median_low_seconds", seconds(time.median_low)},
      {"median_high_seconds", seconds(time.median_high)},
      {"p95_seconds", seconds(time.p95)},
      {"p99_seconds", seconds(time.p99)},
      {"max_seconds", seconds(time.max)},
      {"skew_seconds", seconds(time.skew)},
      {"algbw_gb_per_second", IfPositive(row.algbw)},
      {"busbw_gb_per_second", IfPositive(row.busbw)},
      {"contention", IfPositive(row.contention.value)},
      {"contention_low", IfPositive(row.contention.low)},
      {"contention_high", IfPositive(row.contention.high)},
      {"peer_share", IfPositive(row.peer_share)},
      {"wrong", IfKnown(row.wrong)},
      {"end", EndName(row.end)}};
  fields.insert(fields.end(), own.begin(), own.end());
  return fields;
}

std::string LineOf(const std::vector<Field>& fields, std::string Field::*text) {
  return absl::StrJoin(fields, ",",
                       [text](std::string* out, const Field& field) {
                         out->append(CsvField(field.*text));
                       }) +
         "\n";
}

absl::Status Failed(absl::string_view attempt, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(
      error, absl::StrCat(attempt, " the CSV file ", path,
                          error == ENOENT ? " (its folder must exist)" : ""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CsvWriter>> CsvWriter::Open(
    const std::string& path, const CsvContext& context) {
  const int fd =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return Failed("opening", path);
  std::unique_ptr<CsvWriter> writer(new CsvWriter(path, fd, context));
  if (absl::Status status = writer->Begin(); !status.ok()) return status;
  return writer;
}

CsvWriter::CsvWriter(std::string path, int fd, CsvContext context)
    : path_(std::move(path)), fd_(fd), context_(std::move(context)) {}

CsvWriter::~CsvWriter() { ::close(fd_); }

absl::Status CsvWriter::Write(const Row& row) {
  return Append(LineOf(FieldsOf(row, context_), &Field::value));
}

absl::Status CsvWriter::Begin() {
  const std::string header = LineOf(FieldsOf(Row(), context_), &Field::name);
  // Devices and pipes have no header to check.
  const off_t size = ::lseek(fd_, 0, SEEK_END);
  if (size <= 0) return Append(header);
  std::string found(header.size(), '\0');
  const ssize_t read = ::pread(fd_, found.data(), found.size(), 0);
  if (read < 0) return Failed("reading", path_);
  if (found != header) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, " does not begin with this benchmark's CSV header, so that its ",
        "rows would not fit: name another file"));
  }
  char last = '\n';
  if (::pread(fd_, &last, 1, size - 1) < 0) return Failed("reading", path_);
  return last == '\n' ? absl::OkStatus() : Append("\n");
}

absl::Status CsvWriter::Append(const std::string& text) {
  absl::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("writing to", path_);
    rest.remove_prefix(written);
  }
  return absl::OkStatus();
}

}  // namespace rankwise::comm_bench
