#include "comm_bench/sweep/run_sweep.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/stats/cost_curve.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/output/output.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/hierarchical.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

absl::StatusOr<std::unique_ptr<Layer>> ConnectLayer(const BenchConfig& config,
                                                    const BenchRank& rank) {
  if (config.layer == "nccl") {
    return ConnectNcclLayer(*rank.control, rank.ranks, rank.device);
  }
  if (config.layer == "mpi") return ConnectMpiLayer(*rank.control, rank.ranks);
  if (config.layer == "hierarchical") {
    ASSIGN_OR_RETURN(const Group group, HierarchicalGroup(rank.comm->world()));
    return MakeC10dLayer(group.process_group(), config.layer);
  }
  return MakeC10dLayer(rank.group);
}

// Returns the configuration for the group alone, whose ranks are renumbered.
MeasureConfig ForPlaces(const std::vector<int>& ranks, MeasureConfig measure) {
  std::vector<double>& arrivals = measure.timing.arrival_seconds;
  arrivals.resize(ranks.back() + 1, 0);
  std::vector<double> of_places;
  for (const int rank : ranks) of_places.push_back(arrivals[rank]);
  arrivals = of_places;
  return measure;
}

// Prints the ranks that take part in the rows.
void PrintGroups(const BenchConfig& config, const Plan& plan,
                 const BenchRank& rank) {
  const bool alone = plan.turns.front() == Turn::kFirstGroup;
  const bool all = plan.turns.back() == Turn::kAllGroups;
  rank.output->Print(absl::StrCat(
      "# ", plan.groups.size(), " groups of ",
      Counted(plan.groups[0].size(), "rank"),
      config.axis.empty() ? "" : absl::StrCat(" along ", config.axis),
      alone ? ": the first alone while the others wait" : "",
      alone && all ? ", then all" : "", all ? " at the same time" : "",
      "; times over all ranks taking part, bandwidths of one group\n"));
}

// Returns "alpha 45.20 us, beta 0.25 ns/B (4 GB/s), median error 3.1 %".
std::string FormatCost(const CostCurve& cost) {
  const double beta_ns = cost.line.beta_seconds_per_byte * 1e9;
  const std::string bandwidth =
      beta_ns > 0 ? absl::StrFormat(" (%.4g GB/s)", 1 / beta_ns) : "";
  return absl::StrFormat(
      "alpha %.2f us, beta %.4g ns/B%s, median error %.1f %%",
      cost.line.alpha_seconds * 1e6, beta_ns, bandwidth,
      cost.median_relative_error * 100);
}

// Measures the rows of a sweep, one after the other.
struct Sweep {
  const BenchConfig& config;
  const Plan& plan;
  const BenchRank& rank;
  const MeasureConfig& measure;
  Layer& layer;
  int rows = 0, wrong_rows = 0;
  std::string first_wrong = "";

  // Prints one block, followed by its cost fits.
  absl::Status RunCase(const SweepCase& item) {
    std::map<Turn, CallSeconds> medians;
    for (const SizedCall& next : CallsOf(item, config, plan)) {
      rank.output->Print(next.note);
      if (next.repeats) continue;
      Summary alone;
      for (const Turn turn : plan.turns) {
        ASSIGN_OR_RETURN(const Row row,
                         RunRow(*item.collective, next.call, turn, alone));
        medians[turn][static_cast<double>(row.call().bytes)][0].push_back(
            row.time.median);
        if (row.end == Series::End::kInterrupted)
          return Interrupted(rows, "row");
        alone = row.time;
      }
    }
    for (const auto& [turn, costs] : medians) {
      const absl::StatusOr<CostCurve> cost = FitCostCurve(costs);
      const char* who = turn == Turn::kFirstGroup ? "alone: "
                        : medians.size() > 1      ? "all: "
                                                  : "";
      // A single size means a call without data, which has no cost line.
      if (cost.ok() && cost->points.size() > 1)
        rank.output->Print(absl::StrCat("# ", who, FormatCost(*cost), "\n"));
    }
    return absl::OkStatus();
  }

  // Returns OK, or the number of wrong rows in all blocks.
  absl::Status Verdict() const {
    if (wrong_rows == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(wrong_rows, " of ", Counted(rows, "row"),
                     " had wrong results; ", first_wrong));
  }

  // Measures the first group's row; the other ranks wait and get no samples.
  absl::StatusOr<Measurement> MeasureAlone(const Collective& collective,
                                           const Call& call) {
    absl::StatusOr<Measurement> measured = Measurement();
    if (rank.ranks == plan.groups[0]) {
      measured =
          MeasureRow(layer, *rank.group_control, collective, call, rank.ranks,
                     ForPlaces(rank.ranks, measure), rank.stop);
    }
    RETURN_IF_ERROR(
        AllOk(*rank.control, measured.status(), "measure its group alone"));
    measured->wrong = TextFrom(*rank.control, measured->wrong, 0);
    if (AnyStopped(*rank.control, rank.stop))
      measured->row.end = Series::End::kInterrupted;
    return measured;
  }

  // `alone`: times of the first group's row, if any.
  absl::StatusOr<Row> RunRow(const Collective& collective, Call call, Turn turn,
                             const Summary& alone) {
    call.rank = layer.rank();
    call.device = rank.device;
    ASSIGN_OR_RETURN(Measurement measured,
                     turn == Turn::kFirstGroup
                         ? MeasureAlone(collective, call)
                         : MeasureRow(layer, *rank.control, collective, call,
                                      rank.ranks, measure, rank.stop));
    Row& row = measured.row;
    const bool waited =
        turn == Turn::kFirstGroup && rank.ranks != plan.groups[0];
    if (row.record.seconds.empty() && !waited) return row;  // interrupted
    if (rank.peer_bytes_per_second > 0)
      row.peer_share = row.busbw * 1e9 / rank.peer_bytes_per_second;
    if (alone.median > 0 && row.time.median > 0)
      row.contention = Ratio(MedianOf(row.time), MedianOf(alone));
    ++rows;
    if (!waited) RETURN_IF_ERROR(rank.output->Add(row));
    if (!measured.wrong.empty()) {
      ++wrong_rows;
      if (first_wrong.empty()) first_wrong = measured.wrong;
      rank.output->Print(absl::StrCat("# WRONG: ", measured.wrong, "\n"));
    }
    return row;
  }
};

}  // namespace

absl::Status Interrupted(int64_t count, absl::string_view what) {
  return absl::CancelledError(
      absl::StrCat("interrupted; ", Counted(count, what),
                   count == 1 ? " was measured" : " were measured"));
}

void PrintLeftOut(const Plan& plan, const BenchRank& rank) {
  for (const std::string& reason : plan.left_out)
    rank.output->Print(absl::StrCat("# left out: ", reason, "\n"));
}

absl::Status RunSweep(const BenchConfig& config, const Plan& plan,
                      const BenchRank& rank) {
  ASSIGN_OR_RETURN(auto layer, ConnectLayer(config, rank));
  PrintLeftOut(plan, rank);
  if (!plan.groups.empty()) PrintGroups(config, plan, rank);
  MeasureConfig measure = MeasureOn(rank.device, config);
  measure.nccl_log = measure.choices ? rank.nccl_log : nullptr;
  Sweep sweep = {config, plan, rank, measure, *layer};
  absl::Status status;
  for (const SweepCase& item : plan.cases) {
    if (status.ok()) status = sweep.RunCase(item);
  }
  rank.output->PrintLegend();
  return status.ok() ? sweep.Verdict() : status;
}

}  // namespace rankwise::comm_bench
