// What a training run makes of its ranks' mesh.
#ifndef RANKWISE_TRAINERS_LOOP_MESH_USE_H_
#define RANKWISE_TRAINERS_LOOP_MESH_USE_H_

#include <string>

#include "parallel/comm/exposed_comm.h"
#include "trainers/loop/config.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

// How `split` divides the model between this rank and those along tp and cp.
// What it waits for is added to the last two, which outlive all use.
ModelParallel ParallelOf(const Worker& worker, const ModelSplit& split,
                         ExposedComm* tensor_exposed,
                         ExposedComm* context_exposed);

// Clipping sees the norm of the whole model from now on, of which the ranks
// along pp and tp, and those of `shard`, have parts.
void ShareNorm(const Worker& worker, const Model& model, const Group& shard,
               Optimizer& optimizer);

// "mesh: pp 2, dp 1, cp 1, tp 2 (tp's ranks are neighbours), on one node"; on
// several nodes, which axes cross them. "" where the ranks are all along one
// axis.
std::string DescribeMesh(const Worker& worker);

// What to say where tp crosses nodes: how much it sends there. Else "".
std::string WarnOfTensorAcrossNodes(const TrainConfig& config,
                                    const Worker& worker,
                                    const ModelSpec& model);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_MESH_USE_H_
