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

// A rank's place in a grid without any communication. The last axis changes
// fastest: of axes {dp 2, pp 2} rank 1 is (dp 0, pp 1).
class MeshLayout {
 public:
  // InvalidArgument, with the flags as typed (--dp=2 --pp=2), when the sizes'
  // product is not `world_size`, a size is below 1 or a name comes twice.
  static absl::StatusOr<MeshLayout> Create(std::vector<MeshAxis> axes,
                                           int world_size);
  // The same with the ranks counted host by host, in their order within each,
  // where `hosts` are those of the ranks (Communicator::hosts): so the last
  // axes stay within a host, however ranks are spread over them.
  MeshLayout ByHost(std::vector<int> hosts) const;

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int size(absl::string_view axis) const;
  int coordinate(absl::string_view axis, int rank) const;
  // The ranks that differ from `rank` in `axis` only, in order of coordinate.
  std::vector<int> Line(absl::string_view axis, int rank) const;
  // Whether a line along `axis` has ranks of several hosts. False before
  // ByHost.
  bool CrossesHosts(absl::string_view axis) const;
  // Those that differ from it in `axes` only, the last of which changes
  // fastest.
  std::vector<int> Plane(const std::vector<std::string>& axes, int rank) const;
  // Its coordinates on axes of several ranks: "pp 1, tp 0".
  std::string PlaceOf(int rank) const;

 private:
  explicit MeshLayout(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {}
  // From a rank to its number on the grid, and back.
  int NumberOf(int rank) const {
    return hosts_.empty() ? rank : numbers_[rank];
  }
  int RankAt(int number) const {
    return hosts_.empty() ? number : ranks_[number];
  }

  std::vector<MeshAxis> axes_;
  std::vector<int> hosts_;    // by rank; empty: ranks are in order
  std::vector<int> ranks_;    // by number
  std::vector<int> numbers_;  // by rank
};

// The layout with this rank's groups. Destroy it before the communicator.
class DeviceMesh {
 public:
  // Collective over all ranks of `comm`, which are laid out by host. An axis of
  // all ranks, also where that is one, gets the communicator's own process
  // group if its ranks are in order, another axis of one rank none. Each of
  // `planes`, such as {"dp", "cp"}, gets a group, too, which is called "dp_cp";
  // where all but one of its axes have one rank, it is that axis's. From here
  // on ExplainFailure calls ranks by their places, too.
  static absl::StatusOr<std::unique_ptr<DeviceMesh>> Create(
      Communicator& comm, MeshLayout layout,
      const std::vector<std::vector<std::string>>& planes = {});

  const MeshLayout& layout() const { return layout_; }
  // The ranks along `axis` through this one, or in a plane ("dp_cp").
  // ExplainFailure knows it by this name.
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
