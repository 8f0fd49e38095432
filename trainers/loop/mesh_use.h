// Use of the ranks' mesh by a training run.
#ifndef RANKWISE_TRAINERS_LOOP_MESH_USE_H_
#define RANKWISE_TRAINERS_LOOP_MESH_USE_H_

#include <string>

#include "parallel/comm/exposed_comm.h"
#include "trainers/loop/config.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

// Returns the division of the model by `split` between this rank and those
// along tp and cp. Exposed communication is added to the last two arguments,
// which must outlive all use.
ModelParallel ParallelOf(const Worker& worker, const ModelSplit& split,
                         ExposedComm* tensor_exposed,
                         ExposedComm* context_exposed);

// From now on clipping uses the norm of the whole model, whose parts are held
// by the ranks along pp and tp and by those of `shard`.
void ReduceNormAcross(const Worker& worker, const Model& model,
                      const Group& shard, Optimizer& optimizer);

// Returns "mesh: pp 2, dp 1, cp 1, tp 2 (ranks along tp are neighbours), on one
// node"; on several nodes, the axes that cross them. "" if all ranks are along
// one axis and tp does not cross nodes.
std::string DescribeMesh(const Worker& worker);

// Returns a warning with tp's traffic if tp crosses nodes, else "".
std::string WarnOfTensorAcrossNodes(const TrainConfig& config,
                                    const Worker& worker,
                                    const ModelSpec& model);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_MESH_USE_H_
