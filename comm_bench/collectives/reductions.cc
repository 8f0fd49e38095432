// Collectives that reduce. c10d's all_reduce and reduce are in place, and
// reduce may leave anything in the other ranks' buffers; out of place includes
// the copy that a trainer then needs.
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

void CopyToOutput(const Call& call, Buffers& buffers) {
  if (!call.in_place) buffers.output.copy_(buffers.input);
}

// Checks the output against the reduction's elements from `first` on.
std::optional<WrongElement> CheckReduction(const Call& call,
                                           const Buffers& buffers,
                                           int64_t first = 0) {
  return FindWrong(buffers.output,
                   {{buffers.output.numel(), first, ReductionOf(call)}},
                   ToleranceOf(call));
}

}  // namespace

// Every rank gets the reduction of all ranks' buffers.
constinit const Collective kAllReduce = {
    .name = "all_reduce",
    .summary =
        "every rank gets the reduction of all buffers; out of place "
        "with the copy that c10d's in-place call needs",
    .reduces = true,
    .prefers_in_place = true,
    .replayable = true,
    .bus_factor = [](const Call& call) { return 2 * OthersShare(call); },
    .make = WholeBuffers,
    .fill = FillContribution,
    .start =
        [](c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
          CopyToOutput(call, buffers);
          works.push_back(
              group.allreduce(buffers.output_parts, {.reduceOp = call.op}));
        },
    .nccl_calls = [](const Call& call) -> std::vector<NcclGroup> {
      return {{{.kind = NcclCall::Kind::kAllReduce, .count = call.count}}};
    },
    .check =
        [](const Call& call, const Buffers& buffers) {
          return CheckReduction(call, buffers);
        },
};

// The root gets the reduction of all ranks' buffers.
constinit const Collective kReduce = {
    .name = "reduce",
    .summary =
        "the root gets the reduction of all buffers; out of place with "
        "the copy that c10d's in-place call needs",
    .reduces = true,
    .rooted = true,
    .prefers_in_place = true,
    .replayable = true,
    .make = WholeBuffers,
    .fill = FillContribution,
    .start =
        [](c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
          CopyToOutput(call, buffers);
          works.push_back(
              group.reduce(buffers.output_parts,
                           {.reduceOp = call.op, .rootRank = call.root}));
        },
    .nccl_calls = [](const Call& call) -> std::vector<NcclGroup> {
      return {{{.kind = NcclCall::Kind::kReduce,
                .count = call.count,
                .peer = call.root}}};
    },
    .check = [](const Call& call,
                const Buffers& buffers) -> std::optional<WrongElement> {
      if (call.rank != call.root) return std::nullopt;
      return CheckReduction(call, buffers);
    },
};

// Rank r gets the reduction of all ranks' r-th parts. In place, its output is
// that part of its input.
constinit const Collective kReduceScatter = {
    .name = "reduce_scatter",
    .summary = "every rank gets its part of the reduction of all buffers",
    .reduces = true,
    .replayable = true,
    .granularity = OnePerRank,
    .bus_factor = OthersShare,
    .make =
        [](const Call& call) {
          Buffers buffers;
          buffers.input = NewBuffer(call, call.count);
          buffers.output =
              call.in_place ? PartOf(buffers.input, call.rank, call.world_size)
                            : NewBuffer(call, PartOf(call));
          return buffers;
        },
    .fill = FillContribution,
    .start =
        [](c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
           Works& works) {
          works.push_back(group._reduce_scatter_base(
              buffers.output, buffers.input, {.reduceOp = call.op}));
        },
    .nccl_calls = [](const Call& call) -> std::vector<NcclGroup> {
      return {
          {{.kind = NcclCall::Kind::kReduceScatter, .count = PartOf(call)}}};
    },
    .check =
        [](const Call& call, const Buffers& buffers) {
          return CheckReduction(call, buffers, PartOf(call) * call.rank);
        },
};

}  // namespace rankwise::comm_bench
