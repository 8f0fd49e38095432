#include "analysis/cost_model/message_line.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rankwise {
namespace {

constexpr double kAstraSimGigabyte = 1 << 30;

}  // namespace

absl::StatusOr<MessageLine> LineOfMessages(const NetworkModel& network,
                                           double bytes) {
  for (const char* collective : {"ping_pong", "send_recv"}) {
    const CollectiveCosts* costs = network.Find(collective);
    if (costs == nullptr) continue;
    const CostSegment& segment = costs->curves.front().SegmentFor(bytes);
    return MessageLine{segment.alpha_seconds, segment.beta_seconds_per_byte,
                       costs->collective};
  }
  return absl::NotFoundError(
      absl::StrCat("no messages were measured over ", network.backend,
                   ": run comm_bench with --nproc=2 "
                   "--collectives=ping_pong,send_recv --record=FILE"));
}

std::string ShowFlags(const MessageLine& line, double bytes) {
  return absl::StrFormat("--link=%.6g,%.6g --bytes=%.0f", line.alpha_seconds,
                         line.beta_seconds_per_byte, bytes);
}

absl::StatusOr<std::string> AstraSimNetwork(const MessageLine& line,
                                            int64_t npus) {
  if (npus < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(npus, " NPUs: ASTRA-sim's networks have at least 2"));
  }
  if (line.beta_seconds_per_byte <= 0) {
    return absl::FailedPreconditionError(
        "messages of this size cost the same whatever their size, and "
        "ASTRA-sim takes no infinite bandwidth: choose a larger "
        "--message_bytes");
  }
  return absl::StrFormat(
      "topology: [ Ring ]\n"
      "npus_count: [ %d ]\n"
      "bandwidth: [ %.10g ]  # GB/s, of 2^30 bytes\n"
      "latency: [ %.10g ]  # ns\n",
      npus, 1 / (line.beta_seconds_per_byte * kAstraSimGigabyte),
      line.alpha_seconds * 1e9);
}

}  // namespace rankwise
