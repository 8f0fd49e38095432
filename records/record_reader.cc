#include "records/record_reader.h"

#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "records/record_fields.h"
#include "records/record_json.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Of a run record that was parsed, and so has a version in order.
int MinorVersion(const RunRecord& run) {
  const std::vector<std::string> parts =
      absl::StrSplit(run.schema_version, '.');
  int minor = 0;
  return parts.size() == 2 && absl::SimpleAtoi(parts[1], &minor) ? minor : 0;
}

// Takes the lines of one file in turn; keeps what the next one depends on.
class LineVisitor {
 public:
  LineVisitor(const ReadOptions& options,
              const std::function<absl::Status(const Record&)>& visit)
      : options_(options), visit_(visit) {}

  absl::Status Line(absl::string_view line, bool has_newline, int64_t number) {
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
    const RecordKind kind =
        std::visit([](const auto& r) { return KindOf(r); }, record);
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

}  // namespace

LineReader::LineReader(const std::string& path, size_t block_bytes)
    : path_(path),
      block_bytes_(block_bytes),
      file_(std::fopen(path.c_str(), "rb"), &std::fclose) {
  if (file_ == nullptr) Fail();
}

void LineReader::Fail() {
  status_ =
      absl::ErrnoToStatus(errno, absl::StrCat("reading records from ", path_));
}

bool LineReader::Next() {
  size_t searched = at_;
  size_t newline = std::string::npos;
  while ((newline = buffer_.find('\n', searched)) == std::string::npos) {
    searched = buffer_.size() - at_;  // Fill moves what is left to the front
    if (!Fill()) break;
  }
  if (!status_.ok() || at_ == buffer_.size()) return false;
  has_newline_ = newline != std::string::npos;
  const size_t end = has_newline_ ? newline : buffer_.size();
  line_ = absl::string_view(buffer_).substr(at_, end - at_);
  if (has_newline_) absl::ConsumeSuffix(&line_, "\r");
  at_ = has_newline_ ? end + 1 : end;
  ++number_;
  return true;
}

bool LineReader::Fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  if (!status_.ok()) return false;
  const size_t kept = buffer_.size();
  buffer_.resize(kept + block_bytes_);
  const size_t n = std::fread(&buffer_[kept], 1, block_bytes_, file_.get());
  buffer_.resize(kept + n);
  if (std::ferror(file_.get())) Fail();
  return n > 0 && status_.ok();
}

absl::StatusOr<ReadSummary> VisitRecords(
    const std::string& path, const ReadOptions& options,
    const std::function<absl::Status(const Record&)>& visit) {
  LineReader lines(path);
  LineVisitor visitor(options, visit);
  while (lines.Next()) {
    const absl::Status taken =
        visitor.Line(lines.line(), lines.has_newline(), lines.number());
    if (!taken.ok()) {
      return absl::Status(taken.code(), absl::StrCat(path, ":", lines.number(),
                                                     ": ", taken.message()));
    }
  }
  RETURN_IF_ERROR(lines.status());
  if (visitor.summary().records > 0) return visitor.summary();
  const size_t torn = visitor.summary().torn_lines.size();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": holds no record",
      torn > 0 ? absl::StrCat(", only ", torn,
                              torn == 1 ? " torn line" : " torn lines")
               : "",
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
