// The cores that the ranks of this machine share.
#ifndef RANKWISE_PARALLEL_LAUNCH_CORES_H_
#define RANKWISE_PARALLEL_LAUNCH_CORES_H_

#include "parallel/launch/rank_env.h"

namespace rankwise {

// Logical cores that the ranks of this job on this machine may use together.
//
// A launcher that binds its ranks (mpirun --bind-to, srun --cpu-bind, torchrun
// --numa-binding) leaves each with a few cores, and has the mask that it
// divided among them; --nproc, and any launcher that does not bind, has the
// ranks' own mask. Therefore: UsableCores() of this rank and its parent
// process. A rank without local peers counts its own cores alone, as its parent
// may be any shell.
//
// Ranks that are bound to the same cores by hand, without a launcher, are taken
// for ranks with all cores of the shell that starts them: give them --threads.
int CoresOfLocalRanks(const RankEnv& env);

// An equal share of those for each rank, but no more than this rank's own
// cores; at least 1.
int CoresPerRank(const RankEnv& env);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_CORES_H_
