#include "trainers/loop/worker.h"

#include "absl/algorithm/container.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {

absl::StatusOr<MeshLayout> LayOutRanks(const std::vector<MeshAxis>& axes,
                                       int world_size) {
  // First check only the axes that the trainer has flags for, for the message.
  RETURN_IF_ERROR(MeshLayout::Create(axes, world_size).status());
  std::vector<MeshAxis> all = axes;
  for (const char* name : {"pp", "dp", "cp", "tp"}) {
    const bool given = absl::c_any_of(
        axes, [&](const MeshAxis& axis) { return axis.name == name; });
    if (!given) all.push_back({name});
  }
  return MeshLayout::Create(all, world_size);
}

}  // namespace rankwise
