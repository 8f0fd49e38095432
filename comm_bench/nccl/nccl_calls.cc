#include "comm_bench/nccl/nccl_calls.h"

#include "absl/strings/str_cat.h"

namespace rankwise::comm_bench {
namespace {

using Kind = NcclCall::Kind;
using Groups = std::vector<NcclGroup>;

int64_t Part(const Call& call) { return call.count / call.world_size; }

NcclCall Send(int to, int64_t count, int64_t offset = 0) {
  return {
      .kind = Kind::kSend, .count = count, .peer = to, .input_offset = offset};
}

NcclCall Receive(int from, int64_t count, int64_t offset = 0) {
  return {.kind = Kind::kReceive,
          .count = count,
          .peer = from,
          .output_offset = offset};
}

Groups AllReduce(const Call& call) {
  return {{{.kind = Kind::kAllReduce, .count = call.count}}};
}

Groups Broadcast(const Call& call) {
  return {{{.kind = Kind::kBroadcast, .count = call.count, .peer = call.root}}};
}

Groups Reduce(const Call& call) {
  return {{{.kind = Kind::kReduce, .count = call.count, .peer = call.root}}};
}

Groups AllGather(const Call& call) {
  return {{{.kind = Kind::kAllGather, .count = Part(call)}}};
}

Groups ReduceScatter(const Call& call) {
  return {{{.kind = Kind::kReduceScatter, .count = Part(call)}}};
}

Groups AllToAll(const Call& call) {
  NcclGroup group;
  for (int peer = 0; peer < call.world_size; ++peer) {
    group.push_back(Send(peer, Part(call), peer * Part(call)));
    group.push_back(Receive(peer, Part(call), peer * Part(call)));
  }
  return {group};
}

// Nothing is called for a message without elements: neither side expects one.
Groups AllToAllV(const Call& call) {
  const auto sent = call.traffic->SendCounts(call.rank, call.count);
  const auto received = call.traffic->ReceiveCounts(call.rank, call.count);
  NcclGroup group;
  int64_t input = 0, output = 0;
  for (int peer = 0; peer < call.world_size; ++peer) {
    if (sent[peer] > 0) group.push_back(Send(peer, sent[peer], input));
    if (received[peer] > 0) {
      group.push_back(Receive(peer, received[peer], output));
    }
    input += sent[peer];
    output += received[peer];
  }
  return {group};
}

bool OwnPartStays(const Call& call) {
  return call.in_place && call.rank == call.root;
}

Groups Gather(const Call& call) {
  NcclGroup group;
  if (!OwnPartStays(call)) group.push_back(Send(call.root, Part(call)));
  if (call.rank != call.root) return {group};
  for (int from = 0; from < call.world_size; ++from) {
    if (from == call.root && call.in_place) continue;
    group.push_back(Receive(from, Part(call), from * Part(call)));
  }
  return {group};
}

Groups Scatter(const Call& call) {
  NcclGroup group;
  if (!OwnPartStays(call)) group.push_back(Receive(call.root, Part(call)));
  if (call.rank != call.root) return {group};
  for (int to = 0; to < call.world_size; ++to) {
    if (to == call.root && call.in_place) continue;
    group.push_back(Send(to, Part(call), to * Part(call)));
  }
  return {group};
}

Groups SendReceive(const Call& call) {
  const int next = (call.rank + 1) % call.world_size;
  const int previous = (call.rank + call.world_size - 1) % call.world_size;
  return {{Send(next, call.count), Receive(previous, call.count)}};
}

Groups PingPong(const Call& call) {
  if (call.rank > 1) return {};
  const int peer = 1 - call.rank;
  const NcclGroup send = {Send(peer, call.count)};
  const NcclGroup receive = {Receive(peer, call.count)};
  return call.rank == 0 ? Groups{send, receive} : Groups{receive, send};
}

Groups Bidirectional(const Call& call) {
  const int peer = call.rank ^ 1;
  if (peer >= call.world_size) return {};
  return {{Send(peer, call.count), Receive(peer, call.count)}};
}

struct Entry {
  const char* collective;
  Groups (*calls)(const Call& call);
};

constexpr Entry kEntries[] = {
    {"all_reduce", AllReduce},
    {"broadcast", Broadcast},
    {"reduce", Reduce},
    {"all_gather", AllGather},
    {"reduce_scatter", ReduceScatter},
    {"all_to_all", AllToAll},
    {"all_to_all_v", AllToAllV},
    {"gather", Gather},
    {"scatter", Scatter},
    {"send_recv", SendReceive},
    {"ping_pong", PingPong},
    {"bidirectional", Bidirectional},
};

const Entry* Find(const Collective& collective) {
  const std::string name = collective.name;
  for (const Entry& entry : kEntries) {
    if (name == entry.collective) return &entry;
  }
  return nullptr;
}

// Empty groups are none.
Groups WithoutEmpty(Groups groups) {
  std::erase_if(groups, [](const NcclGroup& group) { return group.empty(); });
  return groups;
}

}  // namespace

absl::StatusOr<std::vector<NcclGroup>> NcclCallsOf(const Collective& collective,
                                                   const Call& call) {
  const Entry* const entry = Find(collective);
  if (entry == nullptr) return CheckNcclCalls(collective);
  return WithoutEmpty(entry->calls(call));
}

absl::Status CheckNcclCalls(const Collective& collective) {
  if (Find(collective) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(collective.name, " with --layer=nccl: nccl.h has no such ",
                   "call; measure it with --layer=c10d"));
}

}  // namespace rankwise::comm_bench
