#include "analysis/cost_model/collective_samples.h"

#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/collective_rows.h"

namespace rankwise {
namespace {

// "float32 sum, in place, barrier": how a collective was measured.
std::string WayOf(const CollectiveRecord& record) {
  return absl::StrCat(
      record.dtype, record.op.empty() ? "" : " ", record.op,
      record.root < 0 ? "" : absl::StrCat(" root ", record.root),
      record.in_place ? ", in place" : ", out of place", ", sync ",
      record.sync);
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
  if (record.timing != "host") {
    return absl::StrCat("was timed by ", record.timing, ", not by the host");
  }
  if (record.graph) return "was captured as a graph";
  if (record.registered) return "had registered buffers";
  if (!record.ranks.empty()) return "was measured in groups of ranks";
  if (record.cache != "hot") return "started with a cold cache";
  return "";
}

class Collector {
 public:
  explicit Collector(std::vector<std::string>* left_out)
      : left_out_(left_out) {}

  void Add(const RunTrace& run) {
    if (run.ranks.empty() || run.ranks[0].run.world_size < 2) return;
    for (const CollectiveRow& row : CollectiveRows(run)) AddRow(run, row);
  }

  std::vector<CollectiveSamples> Take() {
    std::vector<CollectiveSamples> all;
    for (auto& [place, ways] : curves_) {
      const auto& [collective, backend, world_size, in_flight] = place;
      CollectiveSamples samples = {
          collective, backend, world_size, in_flight, {}};
      samples.bus_factor = bus_factors_.at(place);
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

  void AddRow(const RunTrace& run, const CollectiveRow& row) {
    const CollectiveRecord& first = *row.ranks[0];
    const RunRecord& where = run.ranks[0].run;
    std::string why = WhyNotCounted(first);
    if (why.empty()) why = WhyNotOneRow(row, where.world_size);
    if (!why.empty()) return LeaveOut(NameOf(first, where.world_size), why);
    std::vector<double> seconds = SlowestSeconds(row);
    if (seconds.empty()) {
      return LeaveOut(NameOf(first, where.world_size), "has no iterations");
    }
    const std::string way = WayOf(first);
    why = WhyOtherAlgorithm(row, where, way);
    if (!why.empty()) return LeaveOut(NameOf(first, where.world_size), why);
    const Place place = {first.collective, where.backend, where.world_size,
                         first.in_flight};
    double& bus_factor =
        bus_factors_.try_emplace(place, first.bus_factor).first->second;
    if (std::isnan(bus_factor)) bus_factor = first.bus_factor;
    std::vector<double>& all = curves_[place][way][{
        static_cast<double>(first.bytes), NumberOf(run, first)}];
    if (all.empty()) ++sizes_of_way_[{first.collective, way}];
    all.insert(all.end(), seconds.begin(), seconds.end());
  }

  // Empty, or what an earlier launch of this size ran.
  std::string WhyOtherAlgorithm(const CollectiveRow& row,
                                const RunRecord& where,
                                const std::string& way) {
    const CollectiveRecord& first = *row.ranks[0];
    const ChosenAlgorithm chosen = AlgorithmOf(row);
    const std::string own =
        absl::StrCat(chosen.algorithm, " ", chosen.protocol);
    const std::string& before =
        algorithms_
            .try_emplace({first.collective, where.backend, where.world_size,
                          first.in_flight, way, first.bytes},
                         own)
            .first->second;
    if (before == own) return "";
    return absl::StrCat("ran \"", own, "\", and another launch \"", before,
                        "\"");
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
  std::map<Place, double> bus_factors_;
  std::map<std::pair<std::string, std::string>, int> sizes_of_way_;
  // By collective, backend, world size, in_flight, way and bytes.
  std::map<std::tuple<std::string, std::string, int64_t, int64_t, std::string,
                      int64_t>,
           std::string>
      algorithms_;
  // Source, run, launch.
  std::map<std::tuple<std::string, std::string, int64_t>, int64_t> numbers_;
};

}  // namespace

bool BenchmarkSelection::Takes(const RunTrace& run) const {
  if (run.ranks.empty()) return false;
  const RunRecord& record = run.ranks[0].run;
  return (backend.empty() || record.backend == backend) &&
         (most_ranks == 0 || record.world_size <= most_ranks);
}

std::vector<CollectiveSamples> CollectSamples(
    absl::Span<const RunTrace> runs, std::vector<std::string>* left_out,
    const BenchmarkSelection& selection) {
  Collector collector(left_out);
  for (const RunTrace& run : runs) {
    if (selection.Takes(run)) collector.Add(run);
  }
  return collector.Take();
}

}  // namespace rankwise
