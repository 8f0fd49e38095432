// Rank r gets a part of every rank's buffer; a traffic matrix says how large.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/entries.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

absl::Status Refuse(const Call& call) {
  if (call.traffic == nullptr) {
    return absl::InvalidArgumentError(
        "all_to_all_v needs a traffic matrix: who sends how much to whom");
  }
  if (call.traffic->world_size() == call.world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "all_to_all_v over ", call.world_size, " ranks with a traffic matrix of ",
      call.traffic->world_size(), ": give one of as many ranks"));
}

Buffers Make(const Call& call) {
  Buffers buffers;
  buffers.input_splits = call.traffic->SendCounts(call.rank, call.count);
  buffers.output_splits = call.traffic->ReceiveCounts(call.rank, call.count);
  buffers.input = NewBuffer(call, call.count);
  buffers.output =
      NewBuffer(call, std::accumulate(buffers.output_splits.begin(),
                                      buffers.output_splits.end(), int64_t{0}));
  return buffers;
}

void Start(c10d::ProcessGroup& group, const Call&, Buffers& buffers,
           Works& works) {
  works.push_back(group.alltoall_base(buffers.output, buffers.input,
                                      buffers.output_splits,
                                      buffers.input_splits));
}

// Nothing is called for a message without elements: neither side expects one.
std::vector<NcclGroup> NcclCalls(const Call& call) {
  const auto sent = call.traffic->SendCounts(call.rank, call.count);
  const auto received = call.traffic->ReceiveCounts(call.rank, call.count);
  NcclGroup group;
  int64_t input = 0, output = 0;
  for (int peer = 0; peer < call.world_size; ++peer) {
    if (sent[peer] > 0) group.push_back(NcclSend(peer, sent[peer], input));
    if (received[peer] > 0) {
      group.push_back(NcclReceive(peer, received[peer], output));
    }
    input += sent[peer];
    output += received[peer];
  }
  return {group};
}

std::optional<WrongElement> Check(const Call& call, const Buffers& buffers) {
  std::vector<PatternRun> parts;
  for (int from = 0; from < call.world_size; ++from) {
    const auto counts = call.traffic->SendCounts(from, call.count);
    const int64_t first =
        std::accumulate(counts.begin(), counts.begin() + call.rank, int64_t{0});
    parts.push_back({counts[call.rank], first, DataOf(from)});
  }
  return FindWrong(buffers.output, parts);
}

}  // namespace

constinit const Collective kAllToAllV = {
    .name = "all_to_all_v",
    .summary =
        "every rank sends to each what the traffic matrix or the skew "
        "says",
    .in_place = false,
    .bus_factor = OthersShare,
    .refuse = Refuse,
    .make = Make,
    .fill = FillOwnData,
    .start = Start,
    .nccl_calls = NcclCalls,
    .check = Check,
};

}  // namespace rankwise::comm_bench
