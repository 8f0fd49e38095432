// CPU cores shared by the ranks of this machine.
#ifndef RANKWISE_PARALLEL_LAUNCH_CORES_H_
#define RANKWISE_PARALLEL_LAUNCH_CORES_H_

#include "parallel/launch/rank_env.h"

namespace rankwise {

// Logical cores that this job's ranks on this machine may use together:
// UsableCores() of this rank and its parent process.
//
// A launcher that binds its ranks (mpirun --bind-to, srun --cpu-bind, torchrun
// --numa-binding) gives each a few cores and has the mask that it divided among
// them; a launcher that does not bind, such as --nproc, has the same mask as
// its ranks. A rank without local peers counts only its own cores, since its
// parent may be any shell.
//
// Ranks bound to the same cores by hand, without a launcher, appear to have all
// cores of the shell that starts them; set --threads for them.
int CoresOfLocalRanks(const RankEnv& env);

// An equal share of CoresOfLocalRanks(), but no more than this rank's own
// cores; at least 1.
int CoresPerRank(const RankEnv& env);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_CORES_H_
