#include "comm_bench/output/table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace rankwise::comm_bench {
namespace {

constexpr char kNone[] = "-";

// Formats about five digits, at most seven characters below 10 s.
std::string Microseconds(double seconds) {
  const double us = seconds * 1e6;
  return absl::StrFormat("%.*f", us < 100 ? 2 : us < 10000 ? 1 : 0, us);
}

std::string Bandwidth(double gb) {
  if (gb <= 0) return kNone;
  const int decimals = gb < 0.01 ? 5 : gb < 10 ? 3 : gb < 1000 ? 2 : 1;
  return absl::StrFormat("%.*f", decimals, gb);
}

std::string TextOrNone(const std::string& text) {
  return text.empty() ? kNone : text;
}

std::string Elements(const Row& row, int64_t number) {
  return row.call().dtype.empty() ? kNone : absl::StrCat(number);
}

std::string Time(const Row& row, double seconds) {
  return row.time.samples == 0 ? kNone : Microseconds(seconds);
}

std::string Interval(const Row& row) {
  return ReachInPercent(MedianOf(row.time));
}

// ' ' means that the median is as precise as requested.
char MarkOf(Series::End end) {
  switch (end) {
    case Series::End::kCounted:
    case Series::End::kPrecise:
      return ' ';
    case Series::End::kOutOfTime:
    case Series::End::kMaxIterations:
      return '~';
    case Series::End::kInterrupted:
      return '!';
  }
  return ' ';
}

// Cells are right-aligned; `width` includes the space between columns. A bar
// precedes columns that open a group.
struct Column {
  const char* name;
  const char* unit;
  int width;
  bool opens_group;
  std::string (*cell)(const Row& row);
};

// The first column has room for the header's '#'.
const Column kColumns[] = {
    {"size", "B", 11, false,
     [](const Row& r) { return Elements(r, r.call().bytes); }},
    {"count", "elements", 10, false,
     [](const Row& r) { return Elements(r, r.call().count); }},
    {"type", "", 9, false,
     [](const Row& r) { return TextOrNone(r.call().dtype); }},
    {"op", "", 5, false, [](const Row& r) { return TextOrNone(r.call().op); }},
    {"root", "", 5, false,
     [](const Row& r) {
       return r.call().root < 0 ? std::string(kNone)
                                : absl::StrCat(r.call().root);
     }},
    {"place", "", 6, false,
     [](const Row& r) {
       return std::string(r.call().dtype.empty() ? kNone
                          : r.call().in_place    ? "in"
                                                 : "out");
     }},
    {"time ", "us ", 10, true,
     [](const Row& r) { return Time(r, r.time.median) + MarkOf(r.end); }},
    {"+-CI", "%", 6, false, Interval},
    {"min", "us", 8, false, [](const Row& r) { return Time(r, r.time.min); }},
    {"p95", "us", 8, false, [](const Row& r) { return Time(r, r.time.p95); }},
    {"p99", "us", 8, false, [](const Row& r) { return Time(r, r.time.p99); }},
    {"max", "us", 8, false, [](const Row& r) { return Time(r, r.time.max); }},
    {"algbw", "GB/s", 8, true, [](const Row& r) { return Bandwidth(r.algbw); }},
    {"busbw", "GB/s", 8, false,
     [](const Row& r) { return Bandwidth(r.busbw); }},
    {"skew", "us", 8, true, [](const Row& r) { return Time(r, r.time.skew); }},
    {"late", "", 5, false,
     [](const Row& r) { return absl::StrCat(r.time.late); }},
    {"wrong", "", 6, false,
     [](const Row& r) {
       return r.wrong < 0 ? std::string(kNone) : absl::StrCat(r.wrong);
     }},
};

template <typename TextOf>
std::string Line(const TextOf& text_of) {
  std::string line;
  for (const Column& column : kColumns) {
    if (column.opens_group) line += " |";
    // At least one space, even if the text is too long.
    absl::StrAppend(&line,
                    absl::StrFormat(" %*s", column.width - 1, text_of(column)));
  }
  return line;
}

std::string Commented(std::string line) {
  line[0] = '#';
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

const char* Describe(Across across) {
  switch (across) {
    case Across::kSlowest:
      return "of each iteration's slowest rank";
    case Across::kTransfer:
      return "from the last rank's start to the last rank's end";
    case Across::kMakespan:
      return "from the first rank's start to the last rank's end";
    case Across::kMean:
      return "of each iteration's mean over ranks";
  }
  return "";
}

// Describes calls that differ from those of trainers.
std::string Ways(const Row& row) {
  std::string ways;
  if (row.call().layer == "nccl") ways += "; nccl.h";
  if (row.call().layer == "mpi") ways += "; mpi.h";
  if (row.call().timing == "events") ways += "; timed by events";
  if (row.call().graph) ways += "; replayed from a CUDA graph";
  if (row.call().registered) ways += "; registered buffers";
  return ways;
}

std::string Header(const Row& row, Across across) {
  return absl::StrCat(
      "\n# ", row.call().collective, ": median time of a call, ",
      Describe(across), Ways(row), "\n",
      Commented(Line([](const Column& c) { return std::string(c.name); })),
      Commented(Line([](const Column& c) { return std::string(c.unit); })));
}

// Formats values that few rows have, instead of a column.
std::string Remarks(const Row& row) {
  std::string remarks;
  if (!row.call().layer.empty() && row.call().layer != "c10d" &&
      row.call().layer != "nccl" && row.call().layer != "mpi") {
    absl::StrAppend(&remarks, "  layer ", row.call().layer);
  }
  absl::StrAppend(&remarks, GroupRemark(row.call()));
  if (row.contention.value > 0) {
    absl::StrAppendFormat(&remarks, ", %.2f x alone", row.contention.value);
    if (!std::isnan(row.contention.reach())) {
      absl::StrAppendFormat(&remarks, " (%.2f to %.2f)", row.contention.low,
                            row.contention.high);
    }
  }
  if (!row.call().algorithm.empty()) {
    absl::StrAppend(&remarks, "  ", row.call().algorithm, " ",
                    row.call().protocol);
  }
  if (row.peer_share > 0) {
    absl::StrAppendFormat(&remarks, "  %.0f %% of a peer copy",
                          100 * row.peer_share);
  }
  return remarks;
}

}  // namespace

std::string FormatFacts(
    const std::vector<std::pair<std::string, std::string>>& facts) {
  size_t width = 0;
  for (const auto& [name, value] : facts) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : facts) {
    absl::StrAppendFormat(&text, "# %-*s  %s\n", static_cast<int>(width), name,
                          value);
  }
  return text;
}

std::string GroupRemark(const CallDescription& call) {
  if (call.ranks.empty()) return "";
  const int64_t groups = call.concurrent_groups;
  return absl::StrCat("  ranks ", absl::StrJoin(call.ranks, ","),
                      groups == 1  ? " alone"
                      : groups > 1 ? absl::StrCat(" of ", groups, " groups")
                                   : "");
}

std::string Table::Add(const Row& row) {
  std::string text;
  if (row.call().collective != collective_) {
    collective_ = row.call().collective;
    text = Header(row, across_);
  }
  marks_.insert(MarkOf(row.end));
  absl::StrAppend(&text, Line([&row](const Column& c) { return c.cell(row); }),
                  Remarks(row), "\n");
  return text;
}

std::string Table::Legend() const {
  std::string legend;
  if (marks_.count('~') > 0) {
    legend +=
        "# ~ time or iterations ran out before the 95 % interval of the median "
        "(+-CI) was as narrow as requested\n";
  }
  if (marks_.count('!') > 0) {
    legend += "# ! interrupted: results until then\n";
  }
  return legend;
}

}  // namespace rankwise::comm_bench
