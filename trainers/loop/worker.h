// One rank, as seen by the training code.
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

// Returns the mesh of every trainer: `axes`, the last of which changes fastest
// and so stays within a node if possible, and those of pp, dp, cp and tp that
// are missing, with one rank. InvalidArgument, with the flags as typed, if the
// product of the sizes is not `world_size`.
absl::StatusOr<MeshLayout> LayOutRanks(const std::vector<MeshAxis>& axes,
                                       int world_size);

struct Worker {
  std::string trainer;  // the binary: "single", "ddp"
  RankEnv env;
  c10::Device device = c10::kCPU;  // of the batches and sums
  // Devices of the model's parts if one process uses several; else empty.
  std::vector<c10::Device> devices = {};
  int threads = 1;               // intra-op threads
  Communicator* comm = nullptr;  // nullptr without peers
  // The mesh of the job's ranks; by default a single rank.
  MeshLayout layout = *LayOutRanks({}, 1);
  // The same mesh with this rank's groups; nullptr without a communicator.
  std::shared_ptr<const DeviceMesh> mesh = nullptr;

  bool is_first() const { return env.rank == 0; }

  int size(absl::string_view axis) const { return layout.size(axis); }
  int coordinate(absl::string_view axis) const {
    return layout.coordinate(axis, env.rank);
  }
  // Returns the ranks along `axis` through this one, ordered by coordinate.
  std::vector<int> Line(absl::string_view axis) const {
    return layout.Line(axis, env.rank);
  }

  // The share of the data that this rank reads, of dp_size() shares.
  int dp_size() const { return size("dp"); }
  int dp_rank() const { return coordinate("dp"); }

  // The same for the training data, if other ranks than those along dp read it:
  // the number of readers, and this rank's index among them; -1 for a rank that
  // only counts steps.
  int readers = 0;  // 0 for the ranks along dp
  int reader = 0;
  int data_ranks() const { return readers > 0 ? readers : dp_size(); }
  int data_rank() const { return readers > 0 ? reader : dp_rank(); }

  // Returns the number of ranks that compute one copy of the model.
  int ranks_per_copy() const { return size("pp") * size("cp") * size("tp"); }
  // Whether this rank is the first along cp and tp, the one that counts values
  // that they share.
  bool is_first_of_share() const {
    return coordinate("cp") == 0 && coordinate("tp") == 0;
  }

  // Whether `rank` is the first along dp and cp: among ranks with the same
  // weights, the one that saves them.
  bool is_of_first_copy(int rank) const {
    return layout.coordinate("dp", rank) == 0 &&
           layout.coordinate("cp", rank) == 0;
  }
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_WORKER_H_
