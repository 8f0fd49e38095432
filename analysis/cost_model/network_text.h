// A network's costs as a person and other programs take them.
#ifndef RANKWISE_ANALYSIS_COST_MODEL_NETWORK_TEXT_H_
#define RANKWISE_ANALYSIS_COST_MODEL_NETWORK_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "analysis/cost_model/network_model.h"

namespace rankwise {

// A table with a row per curve: the measured sizes, its line with 95 %
// intervals, how far the sizes lie from the line and from what is interpolated
// between their neighbours; and how each collective grows.
std::string NetworkText(const NetworkModel& network);

// One line, alpha + beta * bytes, of the messages between two ranks: all that
// many a simulator takes.
struct MessageLine {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;
  std::string collective;  // what was measured: "ping_pong" or "send_recv"
};

// The curve's line between two ranks, scaled to what messages of `bytes` take:
// of ping_pong, which times one message at a time as a pipeline's link is used,
// or else of send_recv. NotFound, saying what to measure, where neither was.
absl::StatusOr<MessageLine> LineOfMessages(const NetworkModel& network,
                                           double bytes);

// The flags by which //parallel/pipeline:show takes such a link:
// "--link=8.2e-05,1.4e-10 --bytes=65536".
std::string ShowFlags(const MessageLine& line, double bytes);

// The network file of ASTRA-sim's analytical network (version 2.2.0): a ring of
// `npus` that send with the line's latency and bandwidth. Its GB are 2^30 bytes
// (common/NetworkFunction.cpp), so the figure is 7 % below that in 10^9 bytes.
// FailedPrecondition where beta is 0, since it takes no infinite bandwidth;
// InvalidArgument below 2 npus.
absl::StatusOr<std::string> AstraSimNetwork(const MessageLine& line,
                                            int64_t npus);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_COST_MODEL_NETWORK_TEXT_H_
