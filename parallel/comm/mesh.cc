#include "parallel/comm/mesh.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "parallel/comm/communicator.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

// "--dp=2 --pp=4"
std::string AsFlags(const std::vector<MeshAxis>& axes) {
  return absl::StrJoin(axes, " ", [](std::string* out, const MeshAxis& axis) {
    absl::StrAppend(out, "--", axis.name, "=", axis.size);
  });
}

absl::Status CheckAxes(const std::vector<MeshAxis>& axes) {
  std::set<std::string> names;
  for (const MeshAxis& axis : axes) {
    if (axis.size < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          AsFlags(axes), ": --", axis.name, " must be at least 1"));
    }
    if (!names.insert(axis.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(AsFlags(axes), ": --", axis.name, " is given twice"));
    }
  }
  return absl::OkStatus();
}

size_t IndexOf(const std::vector<MeshAxis>& axes, absl::string_view name) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return i;
  }
  TORCH_CHECK(false, "the mesh ", AsFlags(axes), " has no axis ", name);
}

// Distance in rank between neighbours along axis `index`.
int StrideOf(const std::vector<MeshAxis>& axes, size_t index) {
  int stride = 1;
  for (size_t i = index + 1; i < axes.size(); ++i) stride *= axes[i].size;
  return stride;
}

}  // namespace

absl::StatusOr<MeshLayout> MeshLayout::Create(std::vector<MeshAxis> axes,
                                              int world_size) {
  RETURN_IF_ERROR(CheckAxes(axes));
  double ranks = 1;  // exact where it is compared
  for (const MeshAxis& axis : axes) ranks *= axis.size;
  if (ranks != world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        AsFlags(axes), ranks == 1 ? " is " : " are ",
        Counted(static_cast<int64_t>(std::min(ranks, 1e18)), "rank"),
        ", but the job has ", world_size,
        ": the product of the sizes must be the number of ranks (--nproc)"));
  }
  return MeshLayout(std::move(axes));
}

int MeshLayout::size(absl::string_view axis) const {
  return axes_[IndexOf(axes_, axis)].size;
}

int MeshLayout::coordinate(absl::string_view axis, int rank) const {
  const size_t index = IndexOf(axes_, axis);
  return NumberOf(rank) / StrideOf(axes_, index) % axes_[index].size;
}

std::vector<int> MeshLayout::Line(absl::string_view axis, int rank) const {
  const size_t index = IndexOf(axes_, axis);
  const int stride = StrideOf(axes_, index);
  const int first = NumberOf(rank) - coordinate(axis, rank) * stride;
  std::vector<int> ranks;
  for (int i = 0; i < axes_[index].size; ++i)
    ranks.push_back(RankAt(first + i * stride));
  return ranks;
}

MeshLayout MeshLayout::ByHost(std::vector<int> hosts) const {
  MeshLayout layout(axes_);
  layout.ranks_.resize(hosts.size());
  std::iota(layout.ranks_.begin(), layout.ranks_.end(), 0);
  std::stable_sort(layout.ranks_.begin(), layout.ranks_.end(),
                   [&](int a, int b) { return hosts[a] < hosts[b]; });
  layout.numbers_.resize(hosts.size());
  for (size_t number = 0; number < hosts.size(); ++number)
    layout.numbers_[layout.ranks_[number]] = static_cast<int>(number);
  layout.hosts_ = std::move(hosts);
  return layout;
}

bool MeshLayout::CrossesHosts(absl::string_view axis) const {
  for (int rank = 0; rank < static_cast<int>(hosts_.size()); ++rank) {
    if (coordinate(axis, rank) > 0) continue;
    for (const int other : Line(axis, rank)) {
      if (hosts_[other] != hosts_[rank]) return true;
    }
  }
  return false;
}

std::vector<int> MeshLayout::Plane(const std::vector<std::string>& axes,
                                   int rank) const {
  std::vector<int> ranks = {rank};
  for (const std::string& axis : axes) {
    std::vector<int> wider;
    for (int row : ranks) {
      const std::vector<int> line = Line(axis, row);
      wider.insert(wider.end(), line.begin(), line.end());
    }
    ranks = std::move(wider);
  }
  return ranks;
}

std::string MeshLayout::PlaceOf(int rank) const {
  std::vector<std::string> coordinates;
  for (const MeshAxis& axis : axes_) {
    if (axis.size == 1) continue;
    coordinates.push_back(
        absl::StrCat(axis.name, " ", coordinate(axis.name, rank)));
  }
  return absl::StrJoin(coordinates, ", ");
}

absl::StatusOr<std::unique_ptr<DeviceMesh>> DeviceMesh::Create(
    Communicator& comm, MeshLayout layout,
    const std::vector<std::vector<std::string>>& planes) {
  // The layout may have been created for another job.
  ASSIGN_OR_RETURN(const MeshLayout checked,
                   MeshLayout::Create(layout.axes(), comm.world_size()));
  std::unique_ptr<DeviceMesh> mesh(
      new DeviceMesh(checked.ByHost(comm.hosts())));
  std::vector<std::string> places;
  for (int rank = 0; rank < comm.world_size(); ++rank)
    places.push_back(mesh->layout_.PlaceOf(rank));
  comm.SetRankPlaces(std::move(places));
  for (const MeshAxis& axis : mesh->layout_.axes()) {
    RETURN_IF_ERROR(mesh->Connect(comm, axis));
  }
  for (const std::vector<std::string>& axes : planes) {
    RETURN_IF_ERROR(mesh->ConnectPlane(comm, axes));
  }
  return mesh;
}

absl::Status DeviceMesh::Connect(Communicator& comm, const MeshAxis& axis) {
  std::vector<int> line = layout_.Line(axis.name, comm.rank());
  const bool has_all = axis.size == comm.world_size() &&
                       std::is_sorted(line.begin(), line.end());
  if (has_all || axis.size == 1) {
    const int place = layout_.coordinate(axis.name, comm.rank());
    groups_.emplace(axis.name,
                    Group(axis.name, std::move(line), place,
                          has_all ? comm.process_group() : nullptr, &comm));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Group group, comm.NewGroup(axis.name, line));
  groups_.emplace(axis.name, std::move(group));
  return absl::OkStatus();
}

absl::Status DeviceMesh::ConnectPlane(Communicator& comm,
                                      const std::vector<std::string>& axes) {
  const std::string name = absl::StrJoin(axes, "_");
  const std::vector<int> plane = layout_.Plane(axes, comm.rank());
  for (const std::string& axis : axes) {
    if (layout_.size(axis) != static_cast<int>(plane.size())) continue;
    groups_.emplace(name, group(axis));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Group group, comm.NewGroup(name, plane));
  groups_.emplace(name, std::move(group));
  return absl::OkStatus();
}

const Group& DeviceMesh::group(absl::string_view axis) const {
  const auto found = groups_.find(axis);
  TORCH_CHECK(found != groups_.end(), "the mesh ", AsFlags(layout_.axes()),
              " has no group ", axis);
  return found->second;
}

}  // namespace rankwise
