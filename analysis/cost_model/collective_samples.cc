#include "analysis/cost_model/collective_samples.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/runs/collective_rows.h"

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
  if (record.in_flight != 1) {
    return absl::StrCat("had ", record.in_flight, " calls in flight");
  }
  return "";
}

// Collective, backend, world size.
using Place = std::tuple<std::string, std::string, int64_t>;

// One collective measured in one way.
struct Way {
  // Calls by bytes and launch.
  std::map<std::pair<double, int64_t>, std::vector<double>> sizes;
  std::map<int64_t, std::string> algorithms;  // by bytes: of the first launch
};

class Collector {
 public:
  explicit Collector(std::vector<std::string>* left_out)
      : left_out_(left_out) {}

  void Add(const RunTrace& run) {
    if (run.ranks.empty() || run.ranks[0].run.world_size < 2) return;
    for (const CollectiveRow& row : CollectiveRows(run)) {
      const std::string why = WhyNotAdded(run, row);
      if (why.empty()) continue;
      LeaveOut(NameOf(*row.ranks[0], run.ranks[0].run.world_size), why);
    }
  }

  std::vector<CollectiveSamples> Take() {
    std::vector<CollectiveSamples> all;
    for (auto& [place, ways] : curves_) {
      const auto& [collective, backend, world_size] = place;
      CollectiveSamples samples = {collective, backend, world_size, {}};
      samples.bus_factor = bus_factors_.at(place);
      const std::string best = BestWay(collective, ways);
      for (auto& [size, seconds] : ways.at(best).sizes) {
        samples.sizes.push_back({size.first, std::move(seconds), size.second});
      }
      for (const auto& [name, way] : ways) {
        if (name == best) continue;
        LeaveOut(
            absl::StrCat(collective, " on ", world_size, " ranks (", name, ")"),
            absl::StrCat("(", best, ") has more sizes"));
      }
      all.push_back(std::move(samples));
    }
    return all;
  }

 private:
  // Adds the row; else why it does not count.
  std::string WhyNotAdded(const RunTrace& run, const CollectiveRow& row) {
    const CollectiveRecord& first = *row.ranks[0];
    const RunRecord& where = run.ranks[0].run;
    std::string why = WhyNotCounted(first);
    if (why.empty()) why = WhyNotOneRow(row, where.world_size);
    if (!why.empty()) return why;
    const std::vector<double> seconds = SlowestSeconds(row);
    if (seconds.empty()) return "has no iterations";
    const Place place = {first.collective, where.backend, where.world_size};
    const std::string name = WayOf(first);
    Way& way = curves_[place][name];
    const ChosenAlgorithm chosen = AlgorithmOf(row);
    const std::string own =
        absl::StrCat(chosen.algorithm, " ", chosen.protocol);
    const std::string& before =
        way.algorithms.try_emplace(first.bytes, own).first->second;
    if (before != own) {
      return absl::StrCat("ran \"", own, "\", and another launch \"", before,
                          "\"");
    }
    double& bus_factor =
        bus_factors_.try_emplace(place, first.bus_factor).first->second;
    if (std::isnan(bus_factor)) bus_factor = first.bus_factor;
    std::vector<double>& all =
        way.sizes[{static_cast<double>(first.bytes), NumberOf(run, first)}];
    if (all.empty()) ++sizes_of_way_[{first.collective, name}];
    all.insert(all.end(), seconds.begin(), seconds.end());
    return "";
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
                      const std::map<std::string, Way>& ways) const {
    const auto sizes = [&](const auto& way) {
      return sizes_of_way_.at({collective, way.first});
    };
    return std::max_element(ways.begin(), ways.end(),
                            [&](const auto& a, const auto& b) {
                              return sizes(a) < sizes(b);
                            })
        ->first;
  }

  void LeaveOut(const std::string& what, const std::string& why) {
    if (left_out_ == nullptr) return;
    left_out_->push_back(absl::StrCat(what, ": ", why));
  }

  std::vector<std::string>* const left_out_;
  std::map<Place, std::map<std::string, Way>> curves_;
  std::map<Place, double> bus_factors_;
  // By collective and way, over all world sizes.
  std::map<std::pair<std::string, std::string>, int> sizes_of_way_;
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
