// One rank as the training code sees it.
#ifndef RANKWISE_TRAINERS_LOOP_WORKER_H_
#define RANKWISE_TRAINERS_LOOP_WORKER_H_

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/comm/mesh.h"
#include "parallel/launch/rank_env.h"

namespace rankwise {

class Communicator;

// The mesh of every trainer: `axes`, the last of which changes fastest and so
// stays within a node where it can, and what they lack of pp, dp, cp and tp,
// with one rank. InvalidArgument, with the flags as typed, where the product of
// the sizes is not `world_size`.
absl::StatusOr<MeshLayout> LayOutRanks(const std::vector<MeshAxis>& axes,
                                       int world_size);

struct Worker {
  std::string trainer;  // the binary: "single", "ddp"
  RankEnv env;
  c10::Device device = c10::kCPU;  // of the batches and sums
  // Of the model's parts, where one process uses several; else empty.
  std::vector<c10::Device> devices = {};
  int threads = 1;               // intra-op threads
  Communicator* comm = nullptr;  // null without peers
  // Where each rank of the job is; by default there is one.
  MeshLayout layout = *LayOutRanks({}, 1);
  // The same with this rank's groups; null without a communicator.
  std::shared_ptr<const DeviceMesh> mesh = nullptr;

  bool is_first() const { return env.rank == 0; }

  int size(absl::string_view axis) const { return layout.size(axis); }
  int coordinate(absl::string_view axis) const {
    return layout.coordinate(axis, env.rank);
  }
  // The ranks along `axis` through this one, in order of coordinate.
  std::vector<int> Line(absl::string_view axis) const {
    return layout.Line(axis, env.rank);
  }

  // Which share of the data this rank reads: one of dp_size().
  int dp_size() const { return size("dp"); }
  int dp_rank() const { return coordinate("dp"); }

  // The same for the training data only, where it is not read by the ranks
  // along dp: the number of readers, and which one this rank is; -1: none, it
  // only counts steps.
  int readers = 0;  // 0: the ranks along dp
  int reader = 0;
  int data_ranks() const { return readers > 0 ? readers : dp_size(); }
  int data_rank() const { return readers > 0 ? reader : dp_rank(); }

  // Ranks that compute one copy of the model.
  int ranks_per_copy() const { return size("pp") * size("cp") * size("tp"); }
  // Whether this rank is the first along cp and tp: the one that counts, where
  // all of them have the same.
  bool is_first_of_share() const {
    return coordinate("cp") == 0 && coordinate("tp") == 0;
  }

  // Whether `rank` is the first along dp and cp: of those that have the same
  // weights, the one whose weights are saved.
  bool is_of_first_copy(int rank) const {
    return layout.coordinate("dp", rank) == 0 &&
           layout.coordinate("cp", rank) == 0;
  }
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_WORKER_H_
