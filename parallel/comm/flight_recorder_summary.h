// Reduces what c10d's flight recorders of several ranks hold to who waits for
// what.
#ifndef RANKWISE_PARALLEL_COMM_FLIGHT_RECORDER_SUMMARY_H_
#define RANKWISE_PARALLEL_COMM_FLIGHT_RECORDER_SUMMARY_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace rankwise {

// `dumps`: by rank, c10d::dump_nccl_trace_json or dump_fr_trace_json (format
// 2.x, FlightRecorder.hpp), whole or trimmed. Of every group that has not
// finished what its ranks have called, a sentence:
//
//   "group dp (ranks 0, 2): #16 is done everywhere; #17: rank 0 has called
//   all_reduce of [[4]] float32; rank 2 has not come to it, its last is #16,
//   barrier"
//
// then one for each message that is under way, and one for ranks without a
// dump. Numbers are c10d's own, which count what connects the group, too.
// "has called" is all that is known of a GPU that was not timed
// (TORCH_NCCL_ENABLE_TIMING); with times, it may be "is in". Different calls
// under one number are said to be such: kinds always, shapes where they must
// agree.
std::vector<std::string> SummarizeFlightRecorders(
    const std::map<int, std::string>& dumps, int world_size);

// `dump` with the last `calls_per_group` calls of every group only, to be
// passed through a store. "" for what is no dump.
std::string TrimFlightRecorder(const std::string& dump, size_t calls_per_group);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_FLIGHT_RECORDER_SUMMARY_H_
