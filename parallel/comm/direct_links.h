// TCP connections from one rank straight to others of its group, without a
// thread of their own.
#ifndef RANKWISE_PARALLEL_COMM_DIRECT_LINKS_H_
#define RANKWISE_PARALLEL_COMM_DIRECT_LINKS_H_

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace rankwise {

// What is left of an exchange with a peer; either part may be empty.
struct Transfer {
  absl::Span<const char> out;
  absl::Span<char> in;

  bool done() const { return out.empty() && in.empty(); }
};

// One connection to each peer. Used by one thread at a time, Shutdown apart.
class DirectLinks {
 public:
  // Meets `peers` (ranks of the group, of which each names this one too)
  // through `store`, a part of it for this group's links alone. `address`, by
  // which the others reach this rank, is numeric. Unavailable when one cannot
  // be reached within `timeout`.
  static absl::StatusOr<std::unique_ptr<DirectLinks>> Connect(
      int rank, const std::vector<int>& peers, const std::string& address,
      c10d::Store& store, absl::Duration timeout);

  ~DirectLinks();
  DirectLinks(const DirectLinks&) = delete;
  DirectLinks& operator=(const DirectLinks&) = delete;

  // Sends and receives what can be at once; where that is nothing, blocks until
  // something can be, or until `until`: false. Throws c10::Error when the
  // connection is gone.
  bool Step(int peer, Transfer& transfer,
            std::chrono::steady_clock::time_point until);

  // Ends all connections: steps, here and on the peers, throw at once. Callable
  // from any thread.
  void Shutdown();

 private:
  DirectLinks() = default;
  std::map<int, int> fds_;  // by peer
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_DIRECT_LINKS_H_
