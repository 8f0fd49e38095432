// Ranks as a grid: one axis per kind of parallelism, one process group per line
// of ranks along an axis.
#ifndef RANKWISE_PARALLEL_COMM_MESH_H_
#define RANKWISE_PARALLEL_COMM_MESH_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/comm/group.h"

namespace rankwise {

class Communicator;

struct MeshAxis {
  std::string name;  // "pp", "dp"
  int size = 1;
};

// Coordinates of ranks in a grid; does not communicate. The last axis changes
// fastest: with axes {dp 2, pp 2} rank 1 is (dp 0, pp 1).
class MeshLayout {
 public:
  // InvalidArgument, with the flags as typed (--dp=2 --pp=2), if the product of
  // the sizes is not `world_size`, a size is below 1 or a name is repeated.
  static absl::StatusOr<MeshLayout> Create(std::vector<MeshAxis> axes,
                                           int world_size);
  // Returns the layout with ranks numbered host by host, in rank order within
  // each host, so that the last axes stay within a host for any placement of
  // ranks. `hosts` holds the host of each rank (Communicator::hosts).
  MeshLayout ByHost(std::vector<int> hosts) const;

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int size(absl::string_view axis) const;
  int coordinate(absl::string_view axis, int rank) const;
  // The ranks that differ from `rank` in `axis` only, in order of coordinate.
  std::vector<int> Line(absl::string_view axis, int rank) const;
  // Whether any line along `axis` spans several hosts. False before ByHost.
  bool CrossesHosts(absl::string_view axis) const;
  // The ranks that differ from `rank` in `axes` only; the last axis changes
  // fastest.
  std::vector<int> Plane(const std::vector<std::string>& axes, int rank) const;
  // The coordinates of `rank` on axes of several ranks: "pp 1, tp 0".
  std::string PlaceOf(int rank) const;

 private:
  explicit MeshLayout(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {}
  // Convert a rank to its number on the grid, and back.
  int NumberOf(int rank) const {
    return hosts_.empty() ? rank : numbers_[rank];
  }
  int RankAt(int number) const {
    return hosts_.empty() ? number : ranks_[number];
  }

  std::vector<MeshAxis> axes_;
  std::vector<int> hosts_;    // by rank; empty if numbers are ranks
  std::vector<int> ranks_;    // by number
  std::vector<int> numbers_;  // by rank
};

// A layout with this rank's groups. Destroy it before the communicator.
class DeviceMesh {
 public:
  // Lays the ranks of `comm` out by host. Collective over all of them. An axis
  // of all ranks, in their order, uses the communicator's own process group,
  // even if that is one rank; other axes of one rank have no process group.
  // Each of `planes`, such as {"dp", "cp"}, gets a group named "dp_cp", or the
  // group of the one axis that has several ranks. ExplainFailure prints ranks
  // with their places from then on.
  static absl::StatusOr<std::unique_ptr<DeviceMesh>> Create(
      Communicator& comm, MeshLayout layout,
      const std::vector<std::vector<std::string>>& planes = {});

  const MeshLayout& layout() const { return layout_; }
  // The ranks along `axis` through this one, or in a plane ("dp_cp").
  // ExplainFailure uses the same name.
  const Group& group(absl::string_view axis) const;

 private:
  explicit DeviceMesh(MeshLayout layout) : layout_(std::move(layout)) {}
  absl::Status Connect(Communicator& comm, const MeshAxis& axis);
  absl::Status ConnectPlane(Communicator& comm,
                            const std::vector<std::string>& axes);

  MeshLayout layout_;
  std::map<std::string, Group, std::less<>> groups_;  // by axis or plane
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_MESH_H_
