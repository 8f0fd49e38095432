#include "records/collective_rows.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// Whether the texts are equal or one is unknown ("").
bool Agree(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() || a == b;
}

bool IsPairsPingPong(const CollectiveRow& row) {
  const CollectiveRecord& first = *row.ranks[0];
  return row.ranks.size() == 1 && first.collective == "ping_pong" &&
         first.sync == "none" && first.ranks.size() == 2 &&
         first.rank == std::min(first.ranks[0], first.ranks[1]);
}

}  // namespace

CallDescription RowKey(const CollectiveRecord& record) {
  CallDescription key = record;
  key.calls_per_iteration = 1;
  key.algorithm = key.protocol = "";
  key.bus_factor = 1;  // NaN would not compare equal
  key.group_size = 0;
  return key;
}

std::vector<CollectiveRow> CollectiveRows(
    absl::Span<const CollectiveRecord* const> records) {
  // the calls with one RowKey in one launch
  struct Alike {
    std::vector<size_t> rows;         // by turn
    std::map<int64_t, size_t> turns;  // by rank: number of calls so far
  };
  // by RowKey and launch
  std::map<std::pair<CallDescription, int64_t>, Alike> calls;
  std::vector<CollectiveRow> rows;
  for (const CollectiveRecord* record : records) {
    Alike& alike = calls[{RowKey(*record), record->launch}];
    const size_t turn = alike.turns[record->rank]++;
    if (turn == alike.rows.size()) {
      alike.rows.push_back(rows.size());
      rows.push_back({{}, static_cast<int>(turn)});
    }
    rows[alike.rows[turn]].ranks.push_back(record);
  }
  return rows;
}

ChosenAlgorithm AlgorithmOf(const CollectiveRow& row) {
  ChosenAlgorithm chosen;
  for (const CollectiveRecord* record : row.ranks) {
    if (chosen.algorithm.empty()) chosen.algorithm = record->algorithm;
    if (chosen.protocol.empty()) chosen.protocol = record->protocol;
  }
  return chosen;
}

int64_t GroupSize(const CollectiveRecord& record, int64_t world_size) {
  if (record.group_size > 0) return record.group_size;
  return record.ranks.empty() ? world_size
                              : static_cast<int64_t>(record.ranks.size());
}

std::string WhyNotOneRow(const CollectiveRow& row, int64_t world_size) {
  const CollectiveRecord& first = *row.ranks[0];
  const auto ranks = static_cast<int64_t>(row.ranks.size());
  const int64_t expected = GroupSize(first, world_size);
  if (ranks != expected && !IsPairsPingPong(row)) {
    return absl::StrCat("has the records of ", ranks, " of ", expected,
                        " ranks");
  }
  const ChosenAlgorithm chosen = AlgorithmOf(row);
  for (const CollectiveRecord* record : row.ranks) {
    if (!Agree(record->algorithm, chosen.algorithm) ||
        !Agree(record->protocol, chosen.protocol)) {
      return absl::StrCat("rank ", record->rank, " ran ", record->algorithm,
                          " ", record->protocol, ", and another ",
                          chosen.algorithm, " ", chosen.protocol);
    }
    if (record->seconds.size() == first.seconds.size() &&
        record->calls_per_iteration == first.calls_per_iteration) {
      continue;
    }
    return absl::StrCat("ranks ", first.rank, " and ", record->rank,
                        " disagree about its iterations");
  }
  return "";
}

std::vector<double> SlowestSeconds(const CollectiveRow& row) {
  std::set<int64_t> late;
  for (const CollectiveRecord* record : row.ranks) {
    late.insert(record->late.begin(), record->late.end());
  }
  const CollectiveRecord& first = *row.ranks[0];
  std::vector<double> calls;
  for (size_t i = 0; i < first.seconds.size(); ++i) {
    if (late.count(static_cast<int64_t>(i)) > 0) continue;
    double slowest = 0;
    for (const CollectiveRecord* record : row.ranks) {
      slowest = std::max(slowest, record->seconds[i]);
    }
    calls.push_back(slowest / first.calls_per_iteration);
  }
  return calls;
}

}  // namespace rankwise
