#include "records/record_reader.h"

#include <cerrno>
#include <fstream>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "records/record_fields.h"
#include "records/record_json.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// `run` has been parsed, so its version is well-formed.
int MinorVersion(const RunRecord& run) {
  const std::vector<std::string> parts =
      absl::StrSplit(run.schema_version, '.');
  int minor = 0;
  return parts.size() == 2 && absl::SimpleAtoi(parts[1], &minor) ? minor : 0;
}

// Processes the lines of one file in order and keeps the state needed for the
// next line.
class LineVisitor {
 public:
  LineVisitor(const ReadOptions& options,
              const std::function<absl::Status(const Record&)>& visit)
      : options_(options), visit_(visit) {}

  absl::Status Line(absl::string_view line, bool has_newline, int64_t number) {
    if (has_newline) absl::ConsumeSuffix(&line, "\r");
    if (line.empty()) return absl::OkStatus();
    if (!has_newline || line.back() != '}') {
      summary_.torn_lines.push_back(number);
      return TornLine(line, has_newline);
    }
    absl::StatusOr<Record> record = ParseRecord(line);
    if (absl::IsNotFound(record.status())) return UnknownKind(record.status());
    RETURN_IF_ERROR(record.status());
    RETURN_IF_ERROR(FollowsItsRun(*record));
    ++summary_.records;
    return visit_(*record);
  }

  const ReadSummary& summary() const { return summary_; }

 private:
  absl::Status TornLine(absl::string_view line, bool has_newline) {
    if (options_.tolerate_torn_lines) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "a torn line of ", line.size(), " bytes, as a killed run leaves it (",
        has_newline ? "it does not end in '}'" : "no newline ends it",
        "); the records before it are whole"));
  }

  absl::Status UnknownKind(const absl::Status& status) {
    if (!newer_minor_version_) {
      return absl::InvalidArgumentError(status.message());
    }
    ++summary_.unknown_kinds;
    return absl::OkStatus();
  }

  absl::Status FollowsItsRun(const Record& record) {
    if (const auto* run = std::get_if<RunRecord>(&record)) {
      newer_minor_version_ |= MinorVersion(*run) > kSchemaMinor;
      minor_of_rank_[run->rank] = MinorVersion(*run);
      return absl::OkStatus();
    }
    const int64_t rank =
        std::visit([](const auto& r) { return r.rank; }, record);
    const auto minor = minor_of_rank_.find(rank);
    if (minor == minor_of_rank_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a record of rank ", rank, ", which has no run record above it"));
    }
    const RecordKind& kind = kRecordKinds[record.index()];
    if (kind.since_minor <= minor->second) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "a record of kind ", kind.name, ", which schema version ", kSchemaMajor,
        ".", kind.since_minor, " added, under a run record of version ",
        kSchemaMajor, ".", minor->second));
  }

  const ReadOptions& options_;
  const std::function<absl::Status(const Record&)>& visit_;
  ReadSummary summary_;
  std::map<int64_t, int> minor_of_rank_;  // of its latest run record
  bool newer_minor_version_ = false;
};

absl::Status CannotRead(const std::string& path) {
  return absl::ErrnoToStatus(errno,
                             absl::StrCat("reading records from ", path));
}

}  // namespace

absl::StatusOr<ReadSummary> VisitRecords(
    const std::string& path, const ReadOptions& options,
    const std::function<absl::Status(const Record&)>& visit) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CannotRead(path);
  LineVisitor visitor(options, visit);
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const absl::Status taken = visitor.Line(line, !file.eof(), number);
    if (!taken.ok()) {
      return absl::Status(
          taken.code(), absl::StrCat(path, ":", number, ": ", taken.message()));
    }
  }
  if (file.bad()) return CannotRead(path);
  if (visitor.summary().records > 0) return visitor.summary();
  const size_t torn = visitor.summary().torn_lines.size();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": holds no record",
      torn > 0 ? absl::StrCat(", only ", Counted(torn, "torn line")) : "",
      "; is it a file written by --record?"));
}

absl::StatusOr<std::vector<Record>> ReadRecords(const std::string& path,
                                                const ReadOptions& options) {
  std::vector<Record> records;
  const auto keep = [&records](const Record& record) {
    records.push_back(record);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(VisitRecords(path, options, keep).status());
  return records;
}

}  // namespace rankwise
