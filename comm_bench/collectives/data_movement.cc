// Collectives that move data between a root and all ranks, or from all to all.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using Counts = std::vector<int64_t>;

bool IsRoot(const Call& call) { return call.rank == call.root; }

// Checks that the output contains every rank's own data, one after the other.
std::optional<WrongElement> CheckPartsOfAllRanks(const Call& call,
                                                 const Buffers& buffers) {
  std::vector<PatternRun> parts;
  for (int rank = 0; rank < call.world_size; ++rank) {
    parts.push_back({PartOf(call), 0, DataOf(rank)});
  }
  return FindWrong(buffers.output, parts);
}

// The two sides of a gather or scatter: on the root, the row's whole buffer
// with a view of each rank's part; on every rank, its own part, which in place
// is the root's view of it.
struct RootedBuffers {
  at::Tensor whole;  // defined on the root only
  std::vector<at::Tensor> parts;
  at::Tensor own;
};

RootedBuffers MakeRootedBuffers(const Call& call) {
  RootedBuffers buffers;
  if (IsRoot(call)) {
    buffers.whole = NewBuffer(call, call.count);
    for (int i = 0; i < call.world_size; ++i) {
      buffers.parts.push_back(PartOf(buffers.whole, i, call.world_size));
    }
  }
  buffers.own = call.in_place && IsRoot(call) ? buffers.parts[call.root]
                                              : NewBuffer(call, PartOf(call));
  return buffers;
}

// `own` is the call of every rank, `of_root` the root's call for each rank. In
// place the root's part is not moved.
using Message = NcclCall (*)(int peer, int64_t count, int64_t offset);
std::vector<NcclGroup> RootedCalls(const Call& call, Message own,
                                   Message of_root) {
  NcclGroup group;
  if (!IsRoot(call) || !call.in_place) {
    group.push_back(own(call.root, PartOf(call), 0));
  }
  for (int rank = 0; IsRoot(call) && rank < call.world_size; ++rank) {
    if (rank == call.root && call.in_place) continue;
    group.push_back(of_root(rank, PartOf(call), rank * PartOf(call)));
  }
  return {group};
}

void StartAllToAll(c10d::ProcessGroup& group, const Call&, Buffers& buffers,
                   Works& works) {
  works.push_back(group.alltoall_base(buffers.output, buffers.input,
                                      buffers.output_splits,
                                      buffers.input_splits));
}

// Messages without elements are omitted on both sides.
std::vector<NcclGroup> AllToAllCalls(const Counts& sent,
                                     const Counts& received) {
  NcclGroup group;
  int64_t input = 0, output = 0;
  for (size_t i = 0; i < sent.size(); ++i) {
    const int peer = static_cast<int>(i);
    if (sent[i] > 0) group.push_back(NcclSend(peer, sent[i], input));
    if (received[i] > 0) {
      group.push_back(NcclReceive(peer, received[i], output));
    }
    input += sent[i];
    output += received[i];
  }
  return {group};
}

absl::Status RefuseTraffic(const Call& call) {
  if (call.traffic == nullptr) {
    return absl::InvalidArgumentError(
        "all_to_all_v needs a traffic matrix of the amounts between ranks");
  }
  if (call.traffic->world_size() == call.world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "all_to_all_v over ", call.world_size, " ranks with a traffic matrix of ",
      call.traffic->world_size(), ": give one of as many ranks"));
}

Buffers MakeAllToAllV(const Call& call) {
  Buffers buffers;
  buffers.input_splits = call.traffic->SendCounts(call.rank, call.count);
  buffers.output_splits = call.traffic->ReceiveCounts(call.rank, call.count);
  buffers.input = NewBuffer(call, call.count);
  buffers.output =
      NewBuffer(call, std::accumulate(buffers.output_splits.begin(),
                                      buffers.output_splits.end(), int64_t{0}));
  return buffers;
}

std::optional<WrongElement> CheckAllToAllV(const Call& call,
                                           const Buffers& buffers) {
  std::vector<PatternRun> parts;
  for (int from = 0; from < call.world_size; ++from) {
    const Counts counts = call.traffic->SendCounts(from, call.count);
    const int64_t first =
        std::accumulate(counts.begin(), counts.begin() + call.rank, int64_t{0});
    parts.push_back({counts[call.rank], first, DataOf(from)});
  }
  return FindWrong(buffers.output, parts);
}

}  // namespace

// Every rank gets the root's buffer. c10d's call is in place; out of place adds
// the root's copy from its input to its output.
constinit const Collective kBroadcast = {
    .name = "broadcast",
    .summary =
        "every rank gets the root's buffer; out of place with the "
        "root's copy that c10d's in-place call needs",
    .rooted = true,
    .prefers_in_place = true,
    .replayable = true,
    .make =
        [](const Call& call) {
          Call own = call;
          own.in_place = call.in_place || !IsRoot(call);
          return WholeBuffers(own);
        },
    .fill = FillRootsData,
    .start =
        [](c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
          if (!call.in_place && IsRoot(call)) {
            buffers.output.copy_(buffers.input);
          }
          works.push_back(
              group.broadcast(buffers.output_parts, {.rootRank = call.root}));
        },
    .nccl_calls = [](const Call& call) -> std::vector<NcclGroup> {
      return {{{.kind = NcclCall::Kind::kBroadcast,
                .count = call.count,
                .peer = call.root}}};
    },
    .check =
        [](const Call& call, const Buffers& buffers) {
          return CheckDataOf(call, buffers, call.root);
        },
};

// Every rank gets all ranks' buffers, one after the other. In place, a rank's
// input is its own part of the output.
constinit const Collective kAllGather = {
    .name = "all_gather",
    .summary = "every rank gets the buffers of all, one after the other",
    .replayable = true,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make =
        [](const Call& call) {
          Buffers buffers;
          buffers.output = NewBuffer(call, call.count);
          buffers.input =
              call.in_place ? PartOf(buffers.output, call.rank, call.world_size)
                            : NewBuffer(call, PartOf(call));
          return buffers;
        },
    .fill = FillOwnData,
    .start =
        [](c10d::ProcessGroup& group, const Call&, Buffers& buffers,
           Works& works) {
          works.push_back(group._allgather_base(buffers.output, buffers.input));
        },
    .nccl_calls = [](const Call& call) -> std::vector<NcclGroup> {
      return {{{.kind = NcclCall::Kind::kAllGather, .count = PartOf(call)}}};
    },
    .check = CheckPartsOfAllRanks,
};

// The root gets all ranks' buffers, one after the other. In place, its input is
// its own part of the output; the others' calls are the same.
constinit const Collective kGather = {
    .name = "gather",
    .summary = "the root gets the buffers of all, one after the other",
    .rooted = true,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make =
        [](const Call& call) {
          const RootedBuffers made = MakeRootedBuffers(call);
          return Buffers{.input = made.own,
                         .output = made.whole,
                         .input_parts = {made.own},
                         .output_parts = made.parts};
        },
    .fill = FillOwnData,
    .start =
        [](c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
          std::vector<std::vector<at::Tensor>> outputs;
          if (IsRoot(call)) outputs.push_back(buffers.output_parts);
          works.push_back(group.gather(outputs, buffers.input_parts,
                                       {.rootRank = call.root}));
        },
    .nccl_calls =
        [](const Call& call) {
          return RootedCalls(call, NcclSend, NcclReceive);
        },
    .check = [](const Call& call,
                const Buffers& buffers) -> std::optional<WrongElement> {
      if (!IsRoot(call)) return std::nullopt;
      return CheckPartsOfAllRanks(call, buffers);
    },
};

// Rank r gets the r-th part of the root's buffer. In place, the root's output
// is its own part of the input; the others' calls are the same.
constinit const Collective kScatter = {
    .name = "scatter",
    .summary = "every rank gets its part of the root's buffer",
    .rooted = true,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make =
        [](const Call& call) {
          const RootedBuffers made = MakeRootedBuffers(call);
          return Buffers{.input = made.whole,
                         .output = made.own,
                         .input_parts = made.parts,
                         .output_parts = {made.own}};
        },
    .fill = FillRootsData,
    .start =
        [](c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
          std::vector<std::vector<at::Tensor>> inputs;
          if (IsRoot(call)) inputs.push_back(buffers.input_parts);
          works.push_back(group.scatter(buffers.output_parts, inputs,
                                        {.rootRank = call.root}));
        },
    .nccl_calls =
        [](const Call& call) {
          return RootedCalls(call, NcclReceive, NcclSend);
        },
    .check =
        [](const Call& call, const Buffers& buffers) {
          return FindWrong(
              buffers.output,
              {{PartOf(call), PartOf(call) * call.rank, DataOf(call.root)}});
        },
};

// Rank r gets every rank's r-th part.
constinit const Collective kAllToAll = {
    .name = "all_to_all",
    .summary = "every rank sends an equal part of its buffer to each",
    .in_place = false,
    .replayable = true,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make = WholeBuffers,
    .fill = FillOwnData,
    .start = StartAllToAll,
    .nccl_calls =
        [](const Call& call) {
          const Counts parts(call.world_size, PartOf(call));
          return AllToAllCalls(parts, parts);
        },
    .check =
        [](const Call& call, const Buffers& buffers) {
          std::vector<PatternRun> parts;
          for (int from = 0; from < call.world_size; ++from) {
            parts.push_back(
                {PartOf(call), PartOf(call) * call.rank, DataOf(from)});
          }
          return FindWrong(buffers.output, parts);
        },
};

// Rank r gets a part of every rank's buffer; a traffic matrix determines the
// sizes.
constinit const Collective kAllToAllV = {
    .name = "all_to_all_v",
    .summary =
        "every rank sends to each the amount that the matrix or the skew "
        "says",
    .in_place = false,
    .takes_traffic = true,
    .bus_factor = [](const Call& call) { return call.traffic->BusiestShare(); },
    .refuse = RefuseTraffic,
    .make = MakeAllToAllV,
    .fill = FillOwnData,
    .start = StartAllToAll,
    .nccl_calls =
        [](const Call& call) {
          return AllToAllCalls(
              call.traffic->SendCounts(call.rank, call.count),
              call.traffic->ReceiveCounts(call.rank, call.count));
        },
    .check = CheckAllToAllV,
};

}  // namespace rankwise::comm_bench
