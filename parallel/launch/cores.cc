#include "parallel/launch/cores.h"

#include <unistd.h>

#include <algorithm>

#include "records/usable_resources.h"

namespace rankwise {

int CoresOfLocalRanks(const RankEnv& env) {
  return static_cast<int>(env.local_world_size > 1 ? UsableCores({getppid()})
                                                   : UsableCores());
}

int CoresPerRank(const RankEnv& env) {
  const int share = CoresOfLocalRanks(env) / env.local_world_size;
  return std::clamp(share, 1, static_cast<int>(UsableCores()));
}

}  // namespace rankwise
