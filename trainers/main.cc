#include "trainers/main.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/communicator.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/placement.h"
#include "parallel/launch/rank_env.h"
#include "parallel/launch/signals.h"
#include "parallel/trace/operators.h"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/folder_lock.h"
#include "trainers/flag_rules.h"
#include "trainers/flags.h"
#include "trainers/graphs/captured_step.h"
#include "trainers/job.h"
#include "trainers/layers/denormals.h"
#include "trainers/loop/step.h"
#include "trainers/memory/measured_memory.h"
#include "trainers/peak/peak_process.h"
#include "trainers/peak_flag.h"

namespace rankwise {
namespace {

struct CommandLine {
  TrainConfig train;
  CommConfig comm;
  LaunchConfig launch;
};

int Report(const std::string& who, const absl::Status& status) {
  std::fprintf(stderr, "%s: error: %s\n", who.c_str(),
               std::string(status.message()).c_str());
  return ExitCode(status);
}

absl::Status CheckUsage(const Trainer& trainer, const CommandLine& line) {
  RETURN_IF_ERROR(CheckRules(TrainerRules(), trainer.name));
  if (line.train.cuda_graph || line.train.tf32) {
    const std::string why = WhyNoGpu();
    if (!why.empty()) {
      return Bad(line.train.cuda_graph ? "--cuda_graph" : "--tf32",
                 ": needs a GPU: ", why);
    }
  }
  return trainer.check_flags == nullptr ? absl::OkStatus()
                                        : trainer.check_flags(line.train);
}

absl::StatusOr<CommandLine> ReadCommandLine(const Trainer& trainer, int argc,
                                            char** argv) {
  const std::vector<char*> words = ParseFlags(argc, argv);
  CommandLine line;
  ASSIGN_OR_RETURN(line.train, TrainConfigFromFlags());
  ASSIGN_OR_RETURN(line.comm, CommConfigFromFlags());
  ASSIGN_OR_RETURN(line.launch, LaunchConfigFromFlags());
  if (words.size() > 1) {
    return Bad("\"", words[1],
               "\" is not a flag; flags look like --batch_size=64");
  }
  line.launch.max_restarts = line.train.checkpoint.max_restarts;
  line.launch.ranks_save_when_preempted = !line.train.checkpoint.dir.empty();
  RETURN_IF_ERROR(CheckUsage(trainer, line));
  return line;
}

// Checks conditions known only to the rank: its device, and its peers.
absl::Status CheckRank(const Trainer& trainer, const Job& job,
                       const Worker& worker) {
  const TrainConfig& config = job.config;
  if (job.parallelism.divides_model() && worker.device.is_cuda() &&
      worker.comm->has_peers() && !worker.comm->runs_on_device()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stages on ", worker.device.str(), " under the backend ",
        std::string(worker.comm->backend()),
        ", which sends only host memory; give every rank a GPU of its "
        "own (--backend=nccl), or --device=cpu"));
  }
  if (config.output.traffic_steps > 0 &&
      (worker.comm == nullptr || !worker.devices.empty())) {
    return Bad(
        "--traffic_steps=", config.output.traffic_steps, ": ", trainer.name,
        " in one process communicates nothing that could be recorded; "
        "leave it out, or ",
        trainer.distributed ? "start several ranks" : "use the trainer ddp");
  }
  if (worker.device.is_cuda() || !config.cuda_graph) return absl::OkStatus();
  return Bad(
      "--cuda_graph: needs a GPU for every rank, and this one trains on the "
      "CPU; use fewer ranks, or leave out --cuda_graph");
}

void SayOnce(const Worker& worker, const std::string& line) {
  if (worker.is_first() && !line.empty()) std::printf("%s\n", line.c_str());
}

// Runs the trainer. The communicator must still exist, to explain failures.
absl::Status RunAndExplain(const Trainer& trainer, Job& job,
                           const Worker& worker) {
  RETURN_IF_ERROR(CheckRank(trainer, job, worker));
  TrainConfig& config = job.config;
  // Otherwise --device=cuda:1 would also create a context on GPU 0.
  const c10::DeviceGuard device(worker.device);
  SayOnce(worker, SetPeak(worker, config));
  // By default PyTorch lets convolutions round; here the flag sets both.
  at::globalContext().setAllowTF32CuBLAS(config.tf32);
  at::globalContext().setAllowTF32CuDNN(config.tf32);
  try {
    const SideStream stream(worker.device, config.cuda_graph);
    return trainer.run(config, worker);
  } catch (const std::exception& error) {
    return ExplainTrainingFailure("the run", error, worker);
  }
}

// Assigns the devices of the replicas. Replicas compute at the same time, so
// slots of the CPU divide its cores.
void TakeDevices(const Job& job, Worker& worker) {
  worker.devices = job.parallelism.devices;
  worker.device = worker.devices.front();
  if (job.config.threads > 0 || !worker.device.is_cpu()) return;
  const int slots = static_cast<int>(worker.devices.size());
  worker.threads = std::max(1, worker.threads / slots);
  at::set_num_threads(worker.threads);
}

// Runs a trainer that is a single process.
absl::Status RunAlone(const Trainer& trainer, const CommandLine& line,
                      Worker& worker) {
  const RankEnv& env = worker.env;
  if (env.world_size > 1) {
    return Bad("this is rank ", env.rank, " of ", env.world_size, " (",
               env.launcher, "), but ", trainer.name,
               " is one process; use the trainer ddp");
  }
  const std::string& device = line.comm.device;
  const Hardware hardware = DetectHardware();
  ASSIGN_OR_RETURN(worker.device, ChooseDevice(device, env, hardware));
  // The backend is unused, but naming an unavailable one is a mistake.
  RETURN_IF_ERROR(
      ChooseBackend(line.comm.backend, device, worker.device, env, hardware)
          .status());
  SayOnce(worker, WhyOnCpu(device, worker.device, env, hardware));
  ASSIGN_OR_RETURN(Job job, PlanJob(trainer, line.train, /*world_size=*/1));
  if (!job.parallelism.devices.empty()) TakeDevices(job, worker);
  return RunAndExplain(trainer, job, worker);
}

// Connects the ranks and lays them out as the trainer's mesh.
absl::Status RunConnected(const Trainer& trainer, const CommandLine& line,
                          Worker& worker) {
  ASSIGN_OR_RETURN(Job job,
                   PlanJob(trainer, line.train, worker.env.world_size));
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> comm,
                   Communicator::Create(worker.env, line.comm));
  SayOnce(worker, std::string(comm->why_on_cpu()));
  SayOnce(worker, std::string(comm->why_backend()));
  worker.device = comm->device();
  worker.devices = job.parallelism.devices;
  if (!worker.devices.empty()) worker.device = worker.devices.front();
  ASSIGN_OR_RETURN(worker.mesh,
                   DeviceMesh::Create(*comm, job.layout, {{"dp", "cp"}}));
  worker.layout = worker.mesh->layout();
  worker.comm = comm.get();
  job.config.model.split.context_place = worker.coordinate("cp");
  const absl::Status status = RunAndExplain(trainer, job, worker);
  worker.comm = nullptr;
  worker.mesh.reset();  // before the communicator
  return status;
}

// Determines this process's rank and trains.
absl::Status RunRank(const Trainer& trainer, const CommandLine& line,
                     Worker& worker) {
  ASSIGN_OR_RETURN(
      worker.env,
      line.comm.backend == "fake"
          ? FakeRankEnvFromFlags()
          : ReadRankEnv({.master_required = line.comm.file_store.empty()}));
  if (!line.launch.log_dir.empty() && worker.env.launcher != "nproc") {
    return Bad("--log_dir=", line.launch.log_dir,
               ": works with --nproc above 1; other launchers have a flag of "
               "their own");
  }
  if (line.launch.max_restarts > 0 && worker.env.launcher != "nproc") {
    return Bad("--max_restarts=", line.launch.max_restarts,
               ": works only with --nproc; with torchrun use its "
               "--max-restarts, under a scheduler requeue the job");
  }
  worker.threads = ThreadsPerRank(line.train.threads, worker.env);
  at::set_num_threads(worker.threads);
  return trainer.distributed ? RunConnected(trainer, line, worker)
                             : RunAlone(trainer, line, worker);
}

// --dry_run: the first rank of a job prints the memory of all ranks.
absl::Status PrintMemory(const Trainer& trainer, const CommandLine& line) {
  RankEnv env;
  env.world_size = line.launch.nproc;
  if (InsideLauncher()) {
    ASSIGN_OR_RETURN(env, ReadRankEnv({.master_required = false}));
  } else if (line.comm.backend == "fake") {
    env = FakeRankEnvFromFlags();
  }
  if (env.rank != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Job job, PlanJob(trainer, line.train, env.world_size));
  const std::string& device = line.comm.device;
  const bool on_gpu = device == "auto" ? VisibleGpus() > 0 : device != "cpu";
  ASSIGN_OR_RETURN(
      const std::string table,
      MemoryTable(job, on_gpu ? c10::DeviceType::CUDA : c10::DeviceType::CPU));
  std::printf("%s\n", table.c_str());
  return absl::OkStatus();
}

// Sets aside the checkpoints in `dir`; fails if a running job has locked it.
absl::Status SetAside(const std::string& dir, const std::string& trainer) {
  std::error_code ignored;
  if (!std::filesystem::exists(dir, ignored)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(dir, trainer));
  return SetAsideCheckpoints(dir);
}

// Checks conditions that all ranks would refuse, prepares their checkpoint
// folder, and sets how many ranks the job needs.
absl::Status PrepareLaunch(const Trainer& trainer, CommandLine& line) {
  ASSIGN_OR_RETURN(const Job job,
                   PlanJob(trainer, line.train, line.launch.nproc));
  RETURN_IF_ERROR(CheckJob(trainer, job));
  // Open MPI itself ends the job when a rank dies.
  if (job.parallelism.servers > 0 && line.comm.backend != "mpi")
    line.launch.needed_ranks = job.parallelism.servers;
  const CheckpointConfig& checkpoint = line.train.checkpoint;
  if (checkpoint.max_restarts > 0 && !checkpoint.resume) {
    RETURN_IF_ERROR(SetAside(checkpoint.dir, trainer.name));
  }
  return checkpoint.dir.empty() ? absl::OkStatus()
                                : MakeCheckpointFolder(checkpoint.dir);
}

}  // namespace

int TrainerMain(int argc, char** argv, const Trainer& trainer) {
  if (const std::optional<int> ended = RunAsPeakProcess(argc, argv))
    return *ended;
  DescribeCommandLine(trainer.usage, "trainers/");
  // Until the rank's thread count is known: the launcher must start no threads.
  at::set_num_threads(1);
  absl::StatusOr<CommandLine> line = ReadCommandLine(trainer, argc, argv);
  if (!line.ok()) {
    Report(trainer.name, line.status());
    return kBadUsage;  // for every error in the flags
  }
  if (line->train.output.dry_run) {
    const absl::Status said = PrintMemory(trainer, *line);
    return said.ok() ? 0 : Report(trainer.name, said);
  }
  if ((line->launch.nproc > 1 || line->launch.max_restarts > 0) &&
      !InsideLauncher()) {
    const absl::Status prepared = PrepareLaunch(trainer, *line);
    return prepared.ok() ? LaunchRanks(line->launch, argc, argv)
                         : Report(trainer.name, prepared);
  }

  // The profiler's warning of missing GPUs matters only to a CUDA build that
  // may use one.
  if (line->train.output.trace.operators &&
      (line->comm.device == "cpu" || !RangesOn()))
    SilenceProfiler();
  if (line->launch.ranks_save_when_preempted) CatchPreemption();
  PrepareRankProcess();
  FlushDenormals();
  KeepFreedMemory();
  Worker worker;
  worker.trainer = trainer.name;
  absl::Status status;
  try {
    status = RunRank(trainer, *line, worker);
  } catch (const std::exception& error) {  // while connecting
    status = ExplainTrainingFailure("starting", error, worker);
  }
  if (status.ok()) return 0;
  if (absl::IsCancelled(status)) {
    SayOnce(worker,
            absl::StrCat(trainer.name, ": ", std::string(status.message())));
    return kPreempted;
  }
  const bool alone = worker.env.world_size == 1;
  return Report(alone ? trainer.name
                      : absl::StrCat(trainer.name, ": rank ", worker.env.rank),
                status);
}

}  // namespace rankwise
