#include "comm_bench/sweep/sweep.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/output/output.h"
#include "comm_bench/sweep/cost_fit.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/comm/communicator.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

// The ranks of this rank's group; empty: all.
std::vector<int> GroupOf(const BenchRank& rank, int size) {
  std::vector<int> ranks;
  if (size == rank.world_size()) return ranks;
  const int number = rank.rank() / size;
  for (int i = 0; i < size; ++i) ranks.push_back(number * size + i);
  return ranks;
}

absl::StatusOr<std::unique_ptr<Layer>> ConnectLayer(
    const BenchConfig& config, const BenchRank& rank,
    const std::vector<int>& ranks, int size) {
  if (config.layer == "nccl") {
    auto nccl = ConnectRawNccl(*rank.control, ranks, rank.device);
    RETURN_IF_ERROR(
        AllOk(*rank.control, nccl.status(), "connect through nccl.h"));
    return MakeNcclLayer(*std::move(nccl), rank.rank() % size);
  }
  if (ranks.empty()) return MakeC10dLayer(rank.group);
  ASSIGN_OR_RETURN(
      auto group,
      rank.comm->NewGroup(absl::StrCat("group", rank.rank() / size), ranks));
  return MakeC10dLayer(group.process_group());
}

// Measures the rows of one sweep after the other.
struct Sweep {
  const BenchConfig& config;
  const Plan& plan;
  const BenchRank& rank;
  const std::vector<int>& ranks;  // of the group; empty: all
  const MeasureConfig& measure;
  Layer& layer;
  int rows = 0, wrong_rows = 0;
  std::string first_wrong = "";

  // One block; with the fit of its costs below it.
  absl::Status RunCase(const SweepCase& item) {
    std::vector<CostPoint> points;
    for (const SizedCall& next : CallsOf(item, config, plan)) {
      rank.output->Print(next.note);
      if (next.repeats) continue;
      ASSIGN_OR_RETURN(const Row row, RunRow(*item.collective, next.call));
      points.push_back(
          {static_cast<double>(row.call().bytes), row.time.median});
      if (row.end == Series::End::kInterrupted) return Interrupted(rows, "row");
    }
    const absl::StatusOr<CostFit> fit = FitCost(points);
    if (fit.ok())
      rank.output->Print(absl::StrCat("# ", FormatCostFit(*fit), "\n"));
    return absl::OkStatus();
  }

  // OK, or how much was wrong in all blocks.
  absl::Status Verdict() const {
    if (wrong_rows == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(wrong_rows, " of ", Counted(rows, "row"),
                     " had wrong results; ", first_wrong));
  }

  absl::StatusOr<Row> RunRow(const Collective& collective, Call call) {
    call.rank = layer.rank();
    call.device = rank.device;
    ASSIGN_OR_RETURN(Measurement measured,
                     MeasureRow(layer, *rank.control, collective, call, ranks,
                                measure, rank.stop));
    Row& row = measured.row;
    if (row.record.seconds.empty()) return row;  // interrupted
    if (rank.peer_bytes_per_second > 0)
      row.peer_share = row.busbw * 1e9 / rank.peer_bytes_per_second;
    ++rows;
    RETURN_IF_ERROR(rank.output->Add(row));
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
  const int size = plan.traffic.world_size();
  const std::vector<int> ranks = GroupOf(rank, size);
  ASSIGN_OR_RETURN(auto layer, ConnectLayer(config, rank, ranks, size));
  PrintLeftOut(plan, rank);
  if (!ranks.empty()) {
    rank.output->Print(absl::StrCat("# ", rank.world_size() / size,
                                    " groups of ", Counted(size, "rank"),
                                    " at the same time; times over all ranks, "
                                    "bandwidths of one group\n"));
  }
  MeasureConfig measure = MeasureOn(rank.device, config);
  measure.nccl_log = measure.choices ? rank.nccl_log : nullptr;
  Sweep sweep = {config, plan, rank, ranks, measure, *layer};
  absl::Status status;
  for (const SweepCase& item : plan.cases) {
    if (status.ok()) status = sweep.RunCase(item);
  }
  rank.output->PrintLegend();
  return status.ok() ? sweep.Verdict() : status;
}

}  // namespace rankwise::comm_bench
