// What a trainer recorded of its communication (--traffic_steps), read back and
// checked before anything of it is repeated.
#ifndef RANKWISE_COMM_BENCH_MODES_RECORDED_TRAFFIC_H_
#define RANKWISE_COMM_BENCH_MODES_RECORDED_TRAFFIC_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "records/record.h"

namespace rankwise::comm_bench {

struct RecordedTraffic {
  std::string file;
  std::string trainer;  // the binary: "ddp"
  std::string backend;  // "gloo"
  int world_size = 1;
  // Ascending by step; each with the records of all ranks, by rank.
  std::vector<std::vector<TrafficRecord>> steps;
};

// The steps that all ranks of the last run with recorded communication have
// recorded. Errors name the file: none recorded, a run of another number of
// ranks than `world_size`, steps that ranks are missing from, and what
// CheckTraffic refuses.
absl::StatusOr<RecordedTraffic> ReadTraffic(const std::string& file,
                                            int world_size);

// Whether the ranks' events of one step fit each other, so that repeating each
// rank's in its order ends: kinds that can be repeated (all_reduce, broadcast,
// reduce, all_gather, barrier, send, recv), buffers of a known type, peers and
// groups that exist, as many messages received as sent, in order and of equal
// size, and the same collectives on all ranks of a group. InvalidArgument says
// at which step and rank not.
absl::Status CheckTraffic(const std::vector<TrafficRecord>& step);

// Marks around calls that one "coalesced" launches together.
bool IsCoalescingMark(const RecordedTransfer& event);
// send or recv.
bool IsMessage(const RecordedTransfer& event);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_RECORDED_TRAFFIC_H_
