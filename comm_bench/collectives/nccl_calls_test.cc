#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/collectives/traffic_matrix.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using Kind = NcclCall::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Call CallOf(int rank, int world_size, int64_t count) {
  Call call;
  call.rank = rank;
  call.world_size = world_size;
  call.count = count;
  return call;
}

std::vector<NcclGroup> CallsOf(const std::string& name, const Call& call) {
  return NcclCallsOf(**FindCollective(name), call);
}

TEST(NcclCallsTest, NcclsOwnCollectivesCountAsNcclDoes) {
  Call call = CallOf(1, 4, 12);
  call.root = 2;
  EXPECT_THAT(CallsOf("all_reduce", call),
              ElementsAre(ElementsAre(
                  NcclCall{.kind = Kind::kAllReduce, .count = 12})));
  EXPECT_THAT(CallsOf("broadcast", call),
              ElementsAre(ElementsAre(
                  NcclCall{.kind = Kind::kBroadcast, .count = 12, .peer = 2})));
  EXPECT_THAT(CallsOf("reduce", call),
              ElementsAre(ElementsAre(
                  NcclCall{.kind = Kind::kReduce, .count = 12, .peer = 2})));
  EXPECT_THAT(
      CallsOf("all_gather", call),
      ElementsAre(ElementsAre(NcclCall{.kind = Kind::kAllGather, .count = 3})));
  EXPECT_THAT(CallsOf("reduce_scatter", call),
              ElementsAre(ElementsAre(
                  NcclCall{.kind = Kind::kReduceScatter, .count = 3})));
}

TEST(NcclCallsTest, APingIsAnsweredAfterItHasCome) {
  const NcclCall send = {.kind = Kind::kSend, .count = 5, .peer = 1};
  const NcclCall receive = {.kind = Kind::kReceive, .count = 5, .peer = 1};
  EXPECT_THAT(CallsOf("ping_pong", CallOf(0, 3, 5)),
              ElementsAre(ElementsAre(send), ElementsAre(receive)));
  const auto answer = CallsOf("ping_pong", CallOf(1, 3, 5));
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0][0].kind, Kind::kReceive);
  EXPECT_EQ(answer[1][0].kind, Kind::kSend);
  EXPECT_THAT(CallsOf("ping_pong", CallOf(2, 3, 5)), IsEmpty());
}

TEST(NcclCallsTest, WhoHasNoPeerCallsNothing) {
  EXPECT_THAT(CallsOf("bidirectional", CallOf(2, 3, 5)), IsEmpty());
}

TEST(NcclCallsTest, InPlaceTheRootsPartStaysWhereItIs) {
  Call call = CallOf(0, 1, 4);
  EXPECT_EQ(CallsOf("gather", call).at(0).size(), 2u);
  EXPECT_EQ(CallsOf("scatter", call).at(0).size(), 2u);
  call.in_place = true;
  EXPECT_THAT(CallsOf("gather", call), IsEmpty());
  EXPECT_THAT(CallsOf("scatter", call), IsEmpty());
}

// Executes the sends and receives on the CPU: every message must match a
// receive of the same size, and the entry's own check must accept the result.
struct Case {
  std::string collective;
  int world_size;
  int root;
  bool in_place;
};

class NcclMessagesTest : public ::testing::TestWithParam<Case> {};

// messages in flight, by sender and receiver
using Wires = std::map<std::pair<int, int>, std::deque<std::vector<float>>>;

void RunSends(const NcclGroup& group, const Call& call, const Buffers& buffers,
              Wires& wires) {
  for (const NcclCall& item : group) {
    if (item.kind != Kind::kSend) continue;
    ASSERT_LE(item.input_offset + item.count, buffers.input.numel());
    const float* const from =
        buffers.input.data_ptr<float>() + item.input_offset;
    wires[{call.rank, item.peer}].emplace_back(from, from + item.count);
  }
}

// Returns whether all messages could be received.
bool RunReceives(const NcclGroup& group, const Call& call, Buffers& buffers,
                 Wires& wires) {
  for (const NcclCall& item : group) {
    if (item.kind == Kind::kReceive && wires[{item.peer, call.rank}].empty()) {
      return false;
    }
  }
  for (const NcclCall& item : group) {
    if (item.kind != Kind::kReceive) continue;
    auto& wire = wires[{item.peer, call.rank}];
    EXPECT_EQ(static_cast<int64_t>(wire.front().size()), item.count);
    EXPECT_LE(item.output_offset + item.count, buffers.output.numel());
    std::copy(wire.front().begin(), wire.front().end(),
              buffers.output.data_ptr<float>() + item.output_offset);
    wire.pop_front();
  }
  return true;
}

TEST_P(NcclMessagesTest, EveryMessageArrivesWhereTheCheckExpectsIt) {
  const Case& param = GetParam();
  const Collective& collective = **FindCollective(param.collective);
  const TrafficMatrix traffic = TrafficMatrix::Skewed(1.5, param.world_size);
  std::vector<Call> calls;
  std::vector<Buffers> buffers;
  std::vector<std::vector<NcclGroup>> groups;
  for (int rank = 0; rank < param.world_size; ++rank) {
    Call call = CallOf(rank, param.world_size, 24);
    call.root = param.root;
    call.in_place = param.in_place;
    call.traffic = &traffic;
    calls.push_back(call);
    buffers.push_back(collective.make(call));
    collective.fill(call, buffers.back());
    groups.push_back(CallsOf(param.collective, call));
  }
  Wires wires;
  std::vector<size_t> next(groups.size(), 0);
  std::vector<bool> sent(groups.size(), false);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      if (next[rank] == groups[rank].size()) continue;
      const NcclGroup& group = groups[rank][next[rank]];
      if (!sent[rank]) RunSends(group, calls[rank], buffers[rank], wires);
      sent[rank] = true;
      if (!RunReceives(group, calls[rank], buffers[rank], wires)) continue;
      sent[rank] = false;
      ++next[rank];
      moved = true;
    }
  }
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    EXPECT_EQ(next[rank], groups[rank].size()) << "rank " << rank << " waits";
    const auto wrong = collective.check(calls[rank], buffers[rank]);
    EXPECT_FALSE(wrong.has_value())
        << "rank " << rank << " has " << wrong->got << " at " << wrong->index;
  }
  for (const auto& [way, wire] : wires) EXPECT_THAT(wire, IsEmpty());
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string name :
       {"all_to_all", "all_to_all_v", "send_recv", "bidirectional"}) {
    for (const int size : {2, 3, 4}) cases.push_back({name, size, 0, false});
  }
  cases.push_back({"all_to_all", 1, 0, false});
  cases.push_back({"ping_pong", 3, 0, false});
  for (const std::string name : {"gather", "scatter"}) {
    for (const int size : {1, 3}) {
      for (const bool in_place : {false, true}) {
        cases.push_back({name, size, size - 1, in_place});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, NcclMessagesTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return absl::StrCat(
                               info.param.collective, "_",
                               info.param.world_size,
                               info.param.in_place ? "_in_place" : "");
                         });

}  // namespace
}  // namespace rankwise::comm_bench
