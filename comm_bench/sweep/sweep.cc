#include "comm_bench/sweep/sweep.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "comm_bench/collectives/counted.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/nccl/nccl_calls.h"
#include "comm_bench/nccl/nccl_layer.h"
#include "comm_bench/output/output.h"
#include "comm_bench/sweep/agreement.h"
#include "comm_bench/sweep/cost_fit.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/sweep/measure_on.h"
#include "parallel/comm/communicator.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

std::vector<bool> Places(const BenchConfig& config,
                         const Collective& collective) {
  if (!collective.has_elements) return {false};
  if (config.place == "auto") return {collective.prefers_in_place};
  if (config.place != "both") return {config.place == "in"};
  std::vector<bool> places;
  if (collective.out_of_place) places.push_back(false);
  if (collective.in_place) places.push_back(true);
  return places;
}

// All combinations, whether they can run or not.
std::vector<SweepCase> Combinations(const BenchConfig& config) {
  std::vector<SweepCase> cases;
  for (const Collective* collective : config.collectives) {
    const auto dtypes = collective->has_elements
                            ? config.dtypes
                            : std::vector<c10::ScalarType>{config.dtypes[0]};
    const auto ops =
        collective->reduces ? config.ops : std::vector<ReduceOp>{config.ops[0]};
    for (const c10::ScalarType dtype : dtypes) {
      for (const ReduceOp op : ops) {
        for (const bool in_place : Places(config, *collective))
          cases.push_back({collective, dtype, op, in_place});
      }
    }
  }
  return cases;
}

std::vector<int64_t> SizesOf(const Collective& collective,
                             const BenchConfig& config) {
  return collective.has_elements ? config.sizes : std::vector<int64_t>{0};
}

Call CallOf(const SweepCase& item, const BenchConfig& config,
            const TrafficMatrix& traffic, int64_t bytes) {
  const int world_size = traffic.world_size();
  Call call;
  call.count = CountFor(*item.collective, bytes, item.dtype, world_size);
  call.dtype = item.dtype;
  call.op = item.op;
  call.root = item.collective->rooted ? config.root : 0;
  call.in_place = item.in_place;
  call.world_size = world_size;
  call.traffic = &traffic;
  return call;
}

absl::Status CheckCase(const SweepCase& item, const BenchConfig& config,
                       const TrafficMatrix& traffic,
                       const std::string& backend) {
  if (config.measure.in_flight > 1 && item.collective->trips > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        item.collective->name, " with --in_flight=", config.measure.in_flight,
        ": a message waits for the one before it; leave out --in_flight"));
  }
  if (config.layer == "nccl") {
    absl::Status possible = CheckNcclCalls(*item.collective);
    if (!possible.ok()) return possible;
  }
  if (config.measure.graph && !item.collective->has_elements) {
    return absl::InvalidArgumentError(
        absl::StrCat(item.collective->name,
                     " with --cuda_graph: c10d makes the host wait in it, "
                     "which cannot be recorded; leave out --cuda_graph"));
  }
  return CheckCall(*item.collective,
                   CallOf(item, config, traffic, config.sizes[0]), backend);
}

// What the user learns where a row is not of the size asked for: "" where it
// is, or where one of a range of sizes is rounded down, as the documentation
// says.
std::string RoundedNote(const BenchConfig& config, int64_t bytes,
                        const Call& call) {
  const int64_t rounded =
      call.count * static_cast<int64_t>(c10::elementSize(call.dtype));
  if (call.count == 0 || rounded == bytes ||
      (rounded < bytes && !config.sizes_given)) {
    return "";
  }
  return absl::StrCat("# ", Counted(bytes, "byte"), ": measured as ", rounded,
                      ", rounded to whole elements per rank\n");
}

int GroupSize(const BenchConfig& config, int world_size) {
  return config.group_size == 0 ? world_size : config.group_size;
}

absl::Status CheckArrivals(const BenchConfig& config, int world_size) {
  const size_t given = config.measure.timing.arrival_seconds.size();
  if (given <= static_cast<size_t>(world_size)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--arrival_us: ", Counted(given, "number"), " for ",
                   Counted(world_size, "rank")));
}

absl::Status CheckGroups(const BenchConfig& config, int world_size,
                         const std::string& backend) {
  const int size = GroupSize(config, world_size);
  if (world_size % size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--group_size=", size, ": does not divide the ",
                     Counted(world_size, "rank")));
  }
  if (size != world_size && backend == "fake") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--group_size=", size, ": the ranks of --backend=fake are one group"));
  }
  return absl::OkStatus();
}

// The group that this rank measures in.
struct Place {
  std::unique_ptr<Layer> layer;
  std::vector<int> ranks;  // of the job; empty: all
};

// The ranks of this rank's group; empty: all.
std::vector<int> GroupOf(const BenchConfig& config, const BenchRank& rank) {
  std::vector<int> ranks;
  const int size = GroupSize(config, rank.world_size());
  if (size == rank.world_size()) return ranks;
  const int number = rank.rank() / size;
  for (int i = 0; i < size; ++i) ranks.push_back(number * size + i);
  return ranks;
}

absl::StatusOr<std::unique_ptr<Layer>> ConnectLayer(
    const BenchConfig& config, const BenchRank& rank,
    const std::vector<int>& ranks) {
  const int size = GroupSize(config, rank.world_size());
  if (config.layer == "nccl") {
    auto nccl = ConnectRawNccl(*rank.control, ranks, rank.device);
    absl::Status all =
        AllOk(*rank.control, nccl.status(), "connect through nccl.h");
    if (!all.ok()) return all;
    return MakeNcclLayer(*std::move(nccl), rank.rank() % size);
  }
  if (ranks.empty()) return MakeC10dLayer(rank.group);
  auto group =
      rank.comm->NewGroup(absl::StrCat("group", rank.rank() / size), ranks);
  if (!group.ok()) return group.status();
  return MakeC10dLayer(*std::move(group));
}

absl::StatusOr<Place> FindPlace(const BenchConfig& config,
                                const BenchRank& rank) {
  Place place;
  place.ranks = GroupOf(config, rank);
  auto layer = ConnectLayer(config, rank, place.ranks);
  if (!layer.ok()) return layer.status();
  place.layer = *std::move(layer);
  return place;
}

absl::StatusOr<TrafficMatrix> ReadTraffic(const BenchConfig& config,
                                          int group_size) {
  if (!config.traffic_file.empty())
    return TrafficMatrix::Read(config.traffic_file, group_size);
  return TrafficMatrix::Skewed(config.traffic_skew, group_size);
}

// Measures the rows of one sweep after the other.
class Sweep {
 public:
  Sweep(const BenchConfig& config, const BenchRank& rank, MeasureConfig measure,
        Place place, const TrafficMatrix& traffic)
      : config_(config),
        rank_(rank),
        measure_(std::move(measure)),
        place_(std::move(place)),
        traffic_(traffic) {}

  // One block; with the fit of its costs below it.
  absl::Status RunCase(const SweepCase& item) {
    std::vector<CostPoint> points;
    int64_t last_count = -1;
    for (const int64_t bytes : SizesOf(*item.collective, config_)) {
      const Call call = CallOf(item, config_, traffic_, bytes);
      // Small sizes may all be the smallest that can be divided.
      if (std::exchange(last_count, call.count) == call.count) {
        rank_.output->Print(
            absl::StrCat("# ", bytes, " bytes: as the row above",
                         ", rounded to whole elements per rank", "\n"));
        continue;
      }
      rank_.output->Print(RoundedNote(config_, bytes, call));
      const absl::StatusOr<Row> row = RunRow(*item.collective, call);
      if (!row.ok()) return row.status();
      points.push_back({static_cast<double>(row->bytes), row->time.median});
      if (row->end == Series::End::kInterrupted) return Interrupted();
    }
    const absl::StatusOr<CostFit> fit = FitCost(points);
    if (fit.ok())
      rank_.output->Print(absl::StrCat("# ", FormatCostFit(*fit), "\n"));
    return absl::OkStatus();
  }

  // OK, or how much was wrong in all blocks.
  absl::Status Verdict() const {
    if (wrong_rows_ == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(wrong_rows_, " of ", Counted(rows_, "row"),
                     " had wrong results; ", first_wrong_));
  }

 private:
  absl::StatusOr<Row> RunRow(const Collective& collective, Call call) {
    call.rank = place_.layer->rank();
    call.device = rank_.device;
    absl::StatusOr<Measurement> row =
        MeasureRow(*place_.layer, *rank_.control, collective, call,
                   place_.ranks, measure_, rank_.stop);
    if (!row.ok()) return row.status();
    Measurement& measured = *row;
    if (measured.samples.seconds.empty()) return measured.row;  // interrupted
    if (rank_.peer_bytes_per_second > 0)
      measured.row.peer_share =
          measured.row.busbw * 1e9 / rank_.peer_bytes_per_second;
    ++rows_;
    if (!measured.wrong.empty()) {
      ++wrong_rows_;
      if (first_wrong_.empty()) first_wrong_ = measured.wrong;
    }
    absl::Status added = rank_.output->Add(measured.row, measured.samples);
    if (!added.ok()) return added;
    if (!measured.wrong.empty())
      rank_.output->Print(absl::StrCat("# WRONG: ", measured.wrong, "\n"));
    return measured.row;
  }

  absl::Status Interrupted() const {
    return absl::CancelledError(
        absl::StrCat("interrupted; ", Counted(rows_, "row"),
                     rows_ == 1 ? " was measured" : " were measured"));
  }

  const BenchConfig& config_;
  const BenchRank& rank_;
  const MeasureConfig measure_;
  const Place place_;
  const TrafficMatrix& traffic_;
  int rows_ = 0, wrong_rows_ = 0;
  std::string first_wrong_;
};

void Announce(const SweepPlan& plan, const BenchConfig& config,
              const BenchRank& rank) {
  for (const std::string& reason : plan.left_out)
    rank.output->Print(absl::StrCat("# left out: ", reason, "\n"));
  if (config.group_size > 0 && config.group_size < rank.world_size()) {
    rank.output->Print(absl::StrCat("# ", rank.world_size() / config.group_size,
                                    " groups of ",
                                    Counted(config.group_size, "rank"),
                                    " at the same time; times over all ranks, "
                                    "bandwidths of one group\n"));
  }
}

// What a sweep is made of, once it is known to be possible.
struct PreparedSweep {
  TrafficMatrix traffic;
  SweepPlan plan;
};

absl::StatusOr<PreparedSweep> PrepareSweep(const BenchConfig& config,
                                           int world_size,
                                           const std::string& backend) {
  absl::Status status = CheckArrivals(config, world_size);
  if (status.ok()) status = CheckGroups(config, world_size, backend);
  if (!status.ok()) return status;
  absl::StatusOr<TrafficMatrix> traffic =
      ReadTraffic(config, GroupSize(config, world_size));
  if (!traffic.ok()) return traffic.status();
  absl::StatusOr<SweepPlan> plan = PlanSweep(config, *traffic, backend);
  if (!plan.ok()) return plan.status();
  return PreparedSweep{*std::move(traffic), *std::move(plan)};
}

}  // namespace

absl::StatusOr<SweepPlan> PlanSweep(const BenchConfig& config,
                                    const TrafficMatrix& traffic,
                                    const std::string& backend) {
  SweepPlan plan;
  for (const SweepCase& item : Combinations(config)) {
    const absl::Status possible = CheckCase(item, config, traffic, backend);
    if (possible.ok()) {
      plan.cases.push_back(item);
    } else if (config.lenient) {
      plan.left_out.emplace_back(possible.message());
    } else {
      return possible;
    }
  }
  if (!plan.cases.empty()) return plan;
  return absl::InvalidArgumentError(absl::StrCat(
      "nothing is left to measure: ", absl::StrJoin(plan.left_out, "; ")));
}

absl::Status CheckSweep(const BenchConfig& config, int world_size,
                        const std::string& backend) {
  return PrepareSweep(config, world_size, backend).status();
}

absl::StatusOr<std::vector<SweepCall>> PlanCalls(const BenchConfig& config,
                                                 const BenchRank& rank) {
  const TrafficMatrix traffic = TrafficMatrix::Skewed(0, rank.world_size());
  const absl::StatusOr<SweepPlan> plan =
      PlanSweep(config, traffic, rank.backend);
  if (!plan.ok()) return plan.status();
  std::vector<SweepCall> calls;
  for (const SweepCase& item : plan->cases) {
    const std::string name = item.collective->name;
    if (item.collective->trips > 1 || name == "all_to_all_v") {
      const std::string reason =
          absl::StrCat("--mode=", config.mode, " --collectives=", name,
                       ": not measured; choose among the other collectives");
      if (!config.lenient) return absl::InvalidArgumentError(reason);
      rank.output->Print(absl::StrCat("# left out: ", reason, "\n"));
      continue;
    }
    int64_t last_count = -1;
    for (const int64_t bytes : SizesOf(*item.collective, config)) {
      SweepCall next = {item.collective, CallOf(item, config, traffic, bytes)};
      if (std::exchange(last_count, next.call.count) == next.call.count)
        continue;
      rank.output->Print(RoundedNote(config, bytes, next.call));
      next.call.traffic = nullptr;  // it ends here
      next.call.rank = rank.rank();
      next.call.device = rank.device;
      calls.push_back(next);
    }
  }
  return calls;
}

absl::Status RunSweep(const BenchConfig& config, const BenchRank& rank) {
  const absl::StatusOr<PreparedSweep> prepared =
      PrepareSweep(config, rank.world_size(), rank.backend);
  if (!prepared.ok()) return prepared.status();
  if (config.measure.cold && rank.device.is_cuda()) {
    return absl::InvalidArgumentError(
        "--cache=cold: the caches of a GPU cannot be emptied from here; leave "
        "it out");
  }
  absl::StatusOr<MeasureConfig> measure = MeasureOn(rank.device, config);
  if (!measure.ok()) return measure.status();
  measure->nccl_log = measure->choices ? rank.nccl_log : nullptr;
  absl::StatusOr<Place> place = FindPlace(config, rank);
  if (!place.ok()) return place.status();
  Announce(prepared->plan, config, rank);
  Sweep sweep(config, rank, *std::move(measure), *std::move(place),
              prepared->traffic);
  for (const SweepCase& item : prepared->plan.cases) {
    absl::Status status = sweep.RunCase(item);
    if (status.ok()) continue;
    rank.output->PrintLegend();
    return status;
  }
  rank.output->PrintLegend();
  return sweep.Verdict();
}

}  // namespace rankwise::comm_bench
