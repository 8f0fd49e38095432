// Ranks as a grid: one axis per kind of parallelism, one process group per line
// of ranks along an axis.
#ifndef RANKWISE_PARALLEL_COMM_MESH_H_
#define RANKWISE_PARALLEL_COMM_MESH_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

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

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int size(absl::string_view axis) const;
  int coordinate(absl::string_view axis, int rank) const;
  // The ranks that differ from `rank` in `axis` only, in order of coordinate.
  std::vector<int> Line(absl::string_view axis, int rank) const;

 private:
  explicit MeshLayout(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {}
  std::vector<MeshAxis> axes_;
};

// The layout with this rank's groups. Destroy it before the communicator.
class DeviceMesh {
 public:
  // Collective over all ranks of `comm`. An axis of all ranks, also where that
  // is one, gets the communicator's own process group, another axis of one rank
  // none.
  static absl::StatusOr<std::unique_ptr<DeviceMesh>> Create(Communicator& comm,
                                                            MeshLayout layout);

  const MeshLayout& layout() const { return layout_; }
  // The ranks along `axis` through this one. ExplainFailure knows it by the
  // axis's name.
  const Group& group(absl::string_view axis) const;

 private:
  explicit DeviceMesh(MeshLayout layout) : layout_(std::move(layout)) {}
  MeshLayout layout_;
  std::vector<Group> groups_;  // per axis
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_MESH_H_
