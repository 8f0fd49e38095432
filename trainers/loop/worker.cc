#include "trainers/loop/worker.h"

#include "third_party/absl/status_macros.h"

namespace rankwise {

absl::StatusOr<MeshLayout> LayOutRanks(const std::vector<MeshAxis>& axes,
                                       int world_size) {
  // First of the axes that the trainer has flags for, which a refusal names.
  RETURN_IF_ERROR(MeshLayout::Create(axes, world_size).status());
  std::vector<MeshAxis> all = {{"pp"}, {"dp"}, {"cp"}, {"tp"}};
  for (MeshAxis& axis : all) {
    for (const MeshAxis& given : axes) {
      if (given.name == axis.name) axis.size = given.size;
    }
  }
  return MeshLayout::Create(all, world_size);
}

}  // namespace rankwise
