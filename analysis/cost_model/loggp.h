// LogGP (Alexandrov et al. 1995) from rows of messages.

#ifndef ANALYSIS_COST_MODEL_LOGGP_H_
#define ANALYSIS_COST_MODEL_LOGGP_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "analysis/cost_model/collective_samples.h"
#include "analysis/cost_model/cost_curve.h"
#include "analysis/stats/statistics.h"

namespace rankwise {

// LogGP of a message between two ranks.
struct LogGP {
  double latency_seconds = 0;       // L
  double overhead_seconds = 0;      // o, of the sender and of the receiver
  double gap_seconds = 0;           // g, between two small messages
  double gap_seconds_per_byte = 0;  // G
  Interval latency_interval, overhead_interval, gap_interval,
      gap_per_byte_interval;
};

// Fits L, o, g and G, none negative, to the rows `ping_pong` and `send_recv` of
// the smallest world size that has what it takes. With k bytes:
//   ping_pong, half a round trip          L + 2 o + (k - 1) G
//   send_recv, K calls in flight, all     L + 3 o + (K - 1) g + K (k - 1) G
// In send_recv a rank issues a receive and a send, one after the other, before
// the message that comes in is its own to take: an o more. Without records of
// delayed sends (Culler et al. 1996) that is what tells o from L; messages that
// follow each other tell g (Hoefler et al. 2007).
//
// NotFound, saying what to measure, unless there are ping_pong and send_recv,
// the latter with two different in_flight, and three sizes.
absl::StatusOr<LogGP> FitLogGP(absl::Span<const CollectiveSamples> samples,
                               const CostFitConfig& config = {});

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_LOGGP_H_
