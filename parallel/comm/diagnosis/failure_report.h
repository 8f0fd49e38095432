// Puts into words why a collective failed.
#ifndef RANKWISE_PARALLEL_COMM_DIAGNOSIS_FAILURE_REPORT_H_
#define RANKWISE_PARALLEL_COMM_DIAGNOSIS_FAILURE_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/peers.h"

namespace rankwise {

struct Failure {
  std::string attempted;  // "backward of step 17"
  int rank = 0;
  int world_size = 1;
  CollectiveReport collective;
  // This rank's place among those that failed, from 1; 0: unknown.
  int64_t order = 0;
  std::string error;  // the exception's plain message
  absl::Duration collective_timeout;
};

// Names the ranks at fault: those that are gone; if all are there, the first
// that failed; if a timeout was first, the ranks of the collective's own group
// that have not come as far (of a message: its other end).
//
// DeadlineExceeded when the collective timed out, FailedPrecondition when ranks
// called different ones, Unavailable when a rank is gone, else Internal.
// `peers` is AskPeers' answer; its error means that the store is gone with its
// server.
absl::Status DescribeFailure(
    const Failure& failure,
    const absl::StatusOr<std::vector<PeerStatus>>& peers);

// Asks the other ranks through `store`, for up to 2.5 s, and describes what
// they say. Notes there whom this rank blames, for the launcher.
absl::Status ExplainByPeers(const Failure& failure, c10d::Store& store);

// FailedPrecondition with both sides.
absl::Status DescribeMismatch(const Failure& failure);

// The same for an exception that no collective caused.
absl::Status DescribeOtherFailure(const Failure& failure);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIAGNOSIS_FAILURE_REPORT_H_
