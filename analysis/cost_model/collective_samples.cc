#include "analysis/cost_model/collective_samples.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

using Row = std::vector<const CollectiveRecord*>;  // of all ranks

// "float32 sum, in place, barrier": how a collective was measured.
std::string WayOf(const CollectiveRecord& record) {
  return absl::StrCat(
      record.dtype, record.op.empty() ? "" : " ", record.op,
      record.root < 0 ? "" : absl::StrCat(" root ", record.root),
      record.in_place ? ", in place" : ", out of place", ", sync ",
      record.sync);
}

// Equal for the records of one row.
auto KeyOf(const CollectiveRecord& r) {
  return std::tie(r.collective, r.layer, r.ranks, r.bytes, r.count, r.dtype,
                  r.op, r.root, r.in_place, r.in_flight, r.cache, r.sync,
                  r.launch);
}

std::string NameOf(const CollectiveRecord& record, int64_t world_size) {
  return absl::StrCat(record.collective, " of ", record.bytes, " bytes on ",
                      world_size, " ranks");
}

// Empty, or why the records are not the cost of a call by all ranks.
std::string WhyNotCounted(const CollectiveRecord& record) {
  if (record.layer != "c10d") {
    return absl::StrCat("went through ", record.layer, ", not c10d");
  }
  if (!record.ranks.empty()) return "was measured in groups of ranks";
  if (record.cache != "hot") return "started with a cold cache";
  return "";
}

std::string WhyNotOneRow(const Row& row, int64_t world_size) {
  if (static_cast<int64_t>(row.size()) != world_size) {
    return absl::StrCat("has the records of ", row.size(), " ranks");
  }
  for (const CollectiveRecord* record : row) {
    if (record->seconds.size() == row[0]->seconds.size() &&
        record->trips == row[0]->trips) {
      continue;
    }
    return absl::StrCat("ranks ", row[0]->rank, " and ", record->rank,
                        " disagree about its iterations");
  }
  return "";
}

std::vector<double> SecondsOf(const Row& row) {
  std::set<int64_t> late;
  for (const CollectiveRecord* record : row) {
    late.insert(record->late.begin(), record->late.end());
  }
  std::vector<double> calls;
  for (size_t i = 0; i < row[0]->seconds.size(); ++i) {
    if (late.count(static_cast<int64_t>(i)) > 0) continue;
    double slowest = 0;
    for (const CollectiveRecord* record : row) {
      slowest = std::max(slowest, record->seconds[i]);
    }
    calls.push_back(slowest / row[0]->trips);
  }
  return calls;
}

class Collector {
 public:
  explicit Collector(std::vector<std::string>* left_out)
      : left_out_(left_out) {}

  void Add(const RunTrace& run) {
    if (run.ranks.empty() || run.ranks[0].run.world_size < 2) return;
    for (const Row& row : RowsOf(run)) AddRow(run, row);
  }

  std::vector<CollectiveSamples> Take() {
    std::vector<CollectiveSamples> all;
    for (auto& [place, ways] : curves_) {
      const auto& [collective, backend, world_size, in_flight] = place;
      CollectiveSamples samples = {
          collective, backend, world_size, in_flight, {}};
      const std::string best = BestWay(collective, ways);
      for (auto& [way, sizes] : ways) {
        if (way == best) {
          for (auto& [size, seconds] : sizes) {
            samples.sizes.push_back(
                {size.first, std::move(seconds), size.second});
          }
        } else {
          LeaveOut(absl::StrCat(collective, " on ", world_size, " ranks (", way,
                                ")"),
                   absl::StrCat("(", best, ") has more sizes"));
        }
      }
      all.push_back(std::move(samples));
    }
    return all;
  }

 private:
  // Collective, backend, world size, in_flight.
  using Place = std::tuple<std::string, std::string, int64_t, int64_t>;
  // Calls by bytes and launch.
  using Sizes = std::map<std::pair<double, int64_t>, std::vector<double>>;

  // Records with one key, the k-th of each rank together.
  static std::vector<Row> RowsOf(const RunTrace& run) {
    using Key = decltype(KeyOf(run.ranks[0].collectives[0]));
    std::map<std::pair<Key, int>, size_t> row_of_turn;
    std::vector<Row> rows;
    for (const RankTrace& rank : run.ranks) {
      std::map<Key, int> turns;
      for (const CollectiveRecord& record : rank.collectives) {
        const Key key = KeyOf(record);
        const auto [entry, is_new] = row_of_turn.try_emplace(
            std::pair<Key, int>(key, turns[key]++), rows.size());
        if (is_new) rows.emplace_back();
        rows[entry->second].push_back(&record);
      }
    }
    return rows;
  }

  void AddRow(const RunTrace& run, const Row& row) {
    const CollectiveRecord& first = *row[0];
    const RunRecord& where = run.ranks[0].run;
    std::string why = WhyNotCounted(first);
    if (why.empty()) why = WhyNotOneRow(row, where.world_size);
    if (!why.empty()) return LeaveOut(NameOf(first, where.world_size), why);
    std::vector<double> seconds = SecondsOf(row);
    if (seconds.empty()) {
      return LeaveOut(NameOf(first, where.world_size), "has no iterations");
    }
    const std::string way = WayOf(first);
    std::vector<double>& all =
        curves_[{first.collective, where.backend, where.world_size,
                 first.in_flight}][way]
               [{static_cast<double>(first.bytes), NumberOf(run, first)}];
    if (all.empty()) ++sizes_of_way_[{first.collective, way}];
    all.insert(all.end(), seconds.begin(), seconds.end());
  }

  // Of the launch, over all runs.
  int64_t NumberOf(const RunTrace& run, const CollectiveRecord& record) {
    const auto next = static_cast<int64_t>(numbers_.size());
    return numbers_
        .try_emplace({run.source, run.ranks[0].run.run_id, record.launch}, next)
        .first->second;
  }

  // The one of `ways` with the most sizes at all world sizes.
  std::string BestWay(const std::string& collective,
                      const std::map<std::string, Sizes>& ways) const {
    std::string best;
    int most = 0;
    for (const auto& [way, sizes] : ways) {
      const int count = sizes_of_way_.at({collective, way});
      if (count <= most) continue;
      most = count;
      best = way;
    }
    return best;
  }

  void LeaveOut(const std::string& what, const std::string& why) {
    if (left_out_ == nullptr) return;
    left_out_->push_back(absl::StrCat(what, ": ", why));
  }

  std::vector<std::string>* const left_out_;
  std::map<Place, std::map<std::string, Sizes>> curves_;
  std::map<std::pair<std::string, std::string>, int> sizes_of_way_;
  // Source, run, launch.
  std::map<std::tuple<std::string, std::string, int64_t>, int64_t> numbers_;
};

}  // namespace

std::vector<CollectiveSamples> CollectSamples(
    absl::Span<const RunTrace> runs, std::vector<std::string>* left_out) {
  Collector collector(left_out);
  for (const RunTrace& run : runs) collector.Add(run);
  return collector.Take();
}

}  // namespace rankwise
