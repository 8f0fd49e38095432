// Reads a rank's place in the job from the environment variables of torchrun,
// rankwise's launcher (--nproc), OpenMPI's mpirun or Slurm's srun.
#ifndef RANKWISE_PARALLEL_LAUNCH_RANK_ENV_H_
#define RANKWISE_PARALLEL_LAUNCH_RANK_ENV_H_

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace rankwise {

struct RankEnv {
  int rank = 0;        // 0 <= rank < world_size
  int world_size = 1;  // processes in the job
  int local_rank = 0;  // 0 <= local_rank < local_world_size; selects the GPU
  int local_world_size = 1;  // processes of the job on this machine
  // Address of the store. Empty and 0 for a process alone, which chooses a free
  // port of the loopback interface.
  std::string master_addr;
  int master_port = 0;
  // The launcher hosts the store (TORCHELASTIC_USE_AGENT_STORE): rank 0
  // connects to it like every other rank instead of listening itself.
  bool store_is_external = false;
  // Number of restarts by the launcher so far, at most max_restarts. torchrun's
  // agents on different hosts may count differently.
  int restart_count = 0;
  int max_restarts = 0;
  // After a restart by rankwise's launcher: why the previous attempt failed
  // ("rank 1 (process 7) ended with signal 9 (Killed)"), when it failed, and
  // when its ranks were started, in Unix seconds. Empty and NaN if unknown.
  std::string restart_cause;
  double failed_unix_seconds = std::numeric_limits<double>::quiet_NaN();
  double started_unix_seconds = std::numeric_limits<double>::quiet_NaN();
  // Network interface for Gloo (GLOO_SOCKET_IFNAME); "" if not set.
  std::string network_interface;
  // CUDA_VISIBLE_DEVICES; "" if not set, so that all GPUs are visible.
  std::string visible_gpus;
  // The launcher serves PMIx (PMIX_RANK is set), through which MPI finds the
  // other ranks.
  bool has_pmix = false;
  // "nproc", "torchrun", "mpirun" or "srun"; "" for a process started alone.
  std::string launcher;
};

struct RankEnvOptions {
  // False if the ranks meet through a file and need no MASTER_ADDR.
  bool master_required = true;
};

// Returns the value of an environment variable, or nullopt if it is unset.
using EnvLookup =
    std::function<std::optional<std::string>(const std::string& name)>;

// Reads the process's own environment, or `lookup`'s. The first launcher found
// in this order wins, since outer launchers' variables are often inherited:
//  1. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//     (torchrun, --nproc). LOCAL_* may be absent when the world has one rank or
//     MASTER_ADDR is the loopback interface, i.e. all ranks are local.
//  2. OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_RANK,LOCAL_SIZE} (mpirun).
//  3. SLURM_{PROCID,STEP_NUM_TASKS or NTASKS,LOCALID,...} of a job step (srun).
//     The shell of salloc, and a batch script outside srun, carry SLURM_*
//     variables too (the latter even SLURM_PROCID=0) but are not ranks. A rank
//     is a task of a step of two or more (SLURM_STEP_NUM_TASKS); without that
//     variable, one with SLURM_PROCID > 0, or SLURM_NTASKS and MASTER_ADDR.
//  4. Otherwise: a single process.
// mpirun and srun set no MASTER_ADDR. On one machine the loopback interface is
// used, under srun on several the first host of the step's node list; the port
// is derived from the job's id. MASTER_ADDR and MASTER_PORT override both.
//
// InvalidArgument names a missing, malformed or contradictory variable and its
// value.
absl::StatusOr<RankEnv> ReadRankEnv(const RankEnvOptions& options = {});
absl::StatusOr<RankEnv> ReadRankEnv(const EnvLookup& lookup,
                                    const RankEnvOptions& options = {});

// Whether a launcher started this process, even one whose variables ReadRankEnv
// refuses; --nproc is then ignored.
bool InsideLauncher();
bool InsideLauncher(const EnvLookup& lookup);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_RANK_ENV_H_
