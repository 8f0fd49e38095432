// What a rank does about a collective that will not end and that nobody waits
// for in the open (NCCL's run on the GPU): it tells why, and ends the process.
#ifndef RANKWISE_PARALLEL_COMM_STUCK_COLLECTIVE_H_
#define RANKWISE_PARALLEL_COMM_STUCK_COLLECTIVE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/collective_log.h"
#include "parallel/comm/collective_watch.h"
#include "parallel/comm/peers.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace rankwise {

struct StuckCollectiveConfig {
  int rank = 0;
  int world_size = 1;
  absl::Duration collective_timeout = absl::Minutes(5);  // for the report
  std::shared_ptr<const CollectiveLog> log;
  // Not the connection on which the rank waits for others.
  c10::intrusive_ptr<c10d::Store> store;
  // Null, and what gives null: there are no peers. Asked in GiveUp only.
  std::function<Heartbeat*()> heartbeat;
  // A rank whose heart has not beaten for so long is gone. Generous: to take a
  // slow rank for a dead one would end a job that is well.
  absl::Duration silence = absl::Seconds(10);
  // This process's flight recorder as JSON. May hang with the GPU.
  std::function<std::string()> dump_recorder;
  // Ends what is in flight. May hang with the GPU.
  std::function<void()> abort;
  std::function<void(const std::string& line)> print;  // empty: to stderr
  std::function<void(int exit_code)> end;              // empty: _exit
};

// The two callbacks of a CollectiveWatch; called on its thread.
class StuckCollective {
 public:
  explicit StuckCollective(StuckCollectiveConfig config)
      : config_(std::move(config)) {}

  // CollectiveWatchConfig::look_around: whether a rank is dead, gone or has
  // failed. Two requests to the store; more, and up to `silence`, after
  // a collective has been in flight for 10, 20, 40, ... s. Hands over this
  // rank's flight recorder when another rank has failed.
  std::string LookAround(absl::Duration oldest);

  // CollectiveWatchConfig::give_up: prints what DescribeFailure says, or, of
  // a CUDA error, that work on the GPU has failed; then, on the first to fail,
  // what the ranks' flight recorders say together; aborts, and ends the process
  // with exit code 1. Takes up to 3 s for the peers' answer, 2 s for their
  // recorders, and 5 s for the abort.
  void GiveUp(const Trouble& why);

 private:
  Heartbeat* Pulse() const;
  std::string LookForGone();
  void HandOver();
  std::map<int, std::string> GatherRecorders();
  void ShareRecorders(int64_t order);
  void Print(const std::string& line) const;

  const StuckCollectiveConfig config_;
  absl::Duration next_question_ = absl::Seconds(10);
  bool store_lost_ = false;
  bool handed_over_ = false;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_STUCK_COLLECTIVE_H_
