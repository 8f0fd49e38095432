#include "trainers/main.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/comm_flags.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/launcher.h"
#include "parallel/comm/placement.h"
#include "parallel/comm/rank_env.h"
#include "parallel/trace/operators.h"
#include "parallel/trace/ranges.h"
#include "trainers/failure.h"
#include "trainers/flags.h"
#include "trainers/host_memory.h"

namespace rankwise {
namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

int Report(const std::string& who, const absl::Status& status) {
  std::fprintf(stderr, "%s: error: %s\n", who.c_str(),
               std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kInvalidArgument ? kBadUsage
                                                             : kFailed;
}

absl::Status CheckUsage(const Trainer& trainer, const std::vector<char*>& words,
                        const TrainConfig& config, const LaunchConfig& launch) {
  if (words.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", words[1], "\" is not a flag; flags look like --batch_size=64"));
  }
  if (!trainer.distributed && launch.nproc > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nproc=", launch.nproc, ": ", trainer.name,
                     " is one process; use the trainer ddp"));
  }
  if (!trainer.distributed && config.skip_communication) {
    return absl::InvalidArgumentError(
        absl::StrCat("--skip_communication: ", trainer.name,
                     " communicates nothing that could be left out"));
  }
  return trainer.check_flags == nullptr ? absl::OkStatus()
                                        : trainer.check_flags();
}

// While the communicator lives: it explains what failed.
absl::Status Guarded(const Trainer& trainer, const TrainConfig& config,
                     const Worker& worker) {
  try {
    return trainer.run(config, worker);
  } catch (const std::exception& error) {
    return ExplainTrainingFailure("the run", error, worker);
  }
}

// Finds this process's place and trains.
absl::Status RunRank(const Trainer& trainer, const TrainConfig& config,
                     const CommConfig& comm_config, const LaunchConfig& launch,
                     Worker& worker) {
  absl::StatusOr<RankEnv> env =
      comm_config.backend == "fake"
          ? FakeRankEnvFromFlags()
          : ReadRankEnv({.master_required = comm_config.file_store.empty()});
  if (!env.ok()) return env.status();
  if (!launch.log_dir.empty() && env->launcher != "nproc") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_dir=", launch.log_dir,
                     ": works with --nproc above 1; other launchers have a "
                     "flag of their own"));
  }
  worker.env = *env;
  worker.threads = ThreadsPerRank(config.threads, *env);
  at::set_num_threads(worker.threads);
  if (!trainer.distributed) {
    if (env->world_size > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("this is rank ", env->rank, " of ", env->world_size,
                       " (", env->launcher, "), but ", trainer.name,
                       " is one process; use the trainer ddp"));
    }
    absl::StatusOr<c10::Device> device =
        ChooseDevice(comm_config.device, *env, DetectHardware());
    if (!device.ok()) return device.status();
    worker.device = *device;
    return Guarded(trainer, config, worker);
  }
  absl::StatusOr<std::unique_ptr<Communicator>> comm =
      Communicator::Create(*env, comm_config);
  if (!comm.ok()) return comm.status();
  worker.device = (*comm)->device();
  worker.comm = comm->get();
  absl::Status status = Guarded(trainer, config, worker);
  worker.comm = nullptr;
  return status;
}

}  // namespace

int TrainerMain(int argc, char** argv, const Trainer& trainer) {
  DescribeCommandLine(trainer.usage, "trainers/");
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  absl::StatusOr<TrainConfig> config = TrainConfigFromFlags();
  if (!config.ok()) return Report(trainer.name, config.status());
  absl::StatusOr<CommConfig> comm_config = CommConfigFromFlags();
  if (!comm_config.ok()) return Report(trainer.name, comm_config.status());
  absl::StatusOr<LaunchConfig> launch = LaunchConfigFromFlags();
  if (!launch.ok()) return Report(trainer.name, launch.status());
  absl::Status usage = CheckUsage(trainer, words, *config, *launch);
  if (!usage.ok()) return Report(trainer.name, usage);
  if (launch->nproc > 1 && !InsideLauncher())
    return LaunchRanks(*launch, argc, argv);

  // Only builds with CUDA could have more to complain of.
  if (config->output.trace.operators &&
      (comm_config->device == "cpu" || !RangesOn()))
    SilenceProfiler();
  LineBufferOutput();
  KeepFreedMemory();
  Worker worker;
  worker.trainer = trainer.name;
  worker.workspace = Workspace();
  if (trainer.settings != nullptr) worker.settings = trainer.settings();
  absl::Status status;
  try {
    status = RunRank(trainer, *config, *comm_config, *launch, worker);
  } catch (const std::exception& error) {  // while connecting
    status = ExplainTrainingFailure("starting", error, worker);
  }
  if (status.ok()) return 0;
  const bool alone = worker.env.world_size == 1;
  return Report(alone ? trainer.name
                      : absl::StrCat(trainer.name, ": rank ", worker.env.rank),
                status);
}

}  // namespace rankwise
