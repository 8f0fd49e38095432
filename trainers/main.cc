#include "trainers/main.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/communicator.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/placement.h"
#include "parallel/launch/rank_env.h"
#include "parallel/trace/operators.h"
#include "records/command_line.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/graphs/captured_step.h"
#include "trainers/loop/step.h"
#include "trainers/observe/memory.h"

namespace rankwise {
namespace {

int Report(const std::string& who, const absl::Status& status) {
  std::fprintf(stderr, "%s: error: %s\n", who.c_str(),
               std::string(status.message()).c_str());
  return ExitCode(status);
}

// Of what the flags say by themselves, whatever is wrong with it.
int ReportFlags(const Trainer& trainer, const absl::Status& status) {
  Report(trainer.name, status);
  return kBadUsage;
}

absl::Status CheckPrecision(const Trainer& trainer, const TrainConfig& config) {
  if (config.precision != Precision::kFp16 || trainer.whole_model)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--precision=fp16: ", trainer.name,
      " cuts the model, and its parts would have to agree on every step's loss "
      "scale; use --precision=bf16, or the trainer single or ddp"));
}

const char* GpuFlag(const TrainConfig& config) {
  if (config.cuda_graph) return "--cuda_graph";
  return config.tf32 ? "--tf32" : nullptr;
}

// Before any rank is started: what needs a GPU, by the device that is asked
// for.
absl::Status CheckGpuFlags(const Trainer& trainer, const TrainConfig& config,
                           const std::string& device) {
  if (config.cuda_graph && !trainer.whole_model) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--cuda_graph: ", trainer.name,
        " cuts the model, and the host passes its parts' results on; only "
        "single and ddp can capture their steps"));
  }
  const char* flag = GpuFlag(config);
  if (flag == nullptr) return absl::OkStatus();
  if (device == "cpu") {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": needs a GPU, and --device=cpu asks for none"));
  }
  const std::string none = WhyNoGpu();
  if (none.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": needs a GPU: ", none));
}

// And by what this rank got.
absl::Status CheckRank(const Trainer& trainer, const TrainConfig& config,
                       const Worker& worker) {
  if (!trainer.whole_model && worker.device.is_cuda() &&
      worker.comm->has_peers() && !worker.comm->runs_on_device()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stages on ", worker.device.str(), " under the backend ",
        std::string(worker.comm->backend()),
        ", which sends memory of the host only; give every rank a GPU of its "
        "own (--backend=nccl), or --device=cpu"));
  }
  if (config.output.traffic_steps > 0 &&
      (worker.comm == nullptr || !worker.devices.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--traffic_steps=", config.output.traffic_steps, ": ", trainer.name,
        " in one process communicates nothing that could be recorded; leave it "
        "out, or start several ranks"));
  }
  if (worker.device.is_cuda() || !config.cuda_graph) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--cuda_graph: needs a GPU for every rank, and this one trains on the "
      "CPU; use fewer ranks, or leave out --cuda_graph");
}

// PyTorch lets convolutions round unasked; here the flag decides for both.
void AllowTf32(bool allowed) {
  at::globalContext().setAllowTF32CuBLAS(allowed);
  at::globalContext().setAllowTF32CuDNN(allowed);
}

absl::Status CheckUsage(const Trainer& trainer, const std::vector<char*>& words,
                        const TrainConfig& config, const CommConfig& comm,
                        const LaunchConfig& launch) {
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
  absl::Status possible = CheckPrecision(trainer, config);
  if (possible.ok()) possible = CheckGpuFlags(trainer, config, comm.device);
  if (!possible.ok() || trainer.check_flags == nullptr) return possible;
  return trainer.check_flags();
}

// While the communicator lives: it explains what failed.
absl::Status Guarded(const Trainer& trainer, const TrainConfig& config,
                     const Worker& worker) {
  RETURN_IF_ERROR(CheckRank(trainer, config, worker));
  AllowTf32(config.tf32);
  try {
    const SideStream stream(worker.device, config.cuda_graph);
    return trainer.run(config, worker);
  } catch (const std::exception& error) {
    return ExplainTrainingFailure("the run", error, worker);
  }
}

void SayOnce(const Worker& worker, const std::string& line) {
  if (worker.is_first() && !line.empty()) std::printf("%s\n", line.c_str());
}

// Of a trainer without other ranks.
absl::Status RunAlone(const Trainer& trainer, const TrainConfig& config,
                      const CommConfig& comm_config, Worker& worker) {
  const RankEnv& env = worker.env;
  if (env.world_size > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this is rank ", env.rank, " of ", env.world_size, " (", env.launcher,
        "), but ", trainer.name, " is one process; use the trainer ddp"));
  }
  const Hardware hardware = DetectHardware();
  ASSIGN_OR_RETURN(worker.device,
                   ChooseDevice(comm_config.device, env, hardware));
  // Unused, but one that could not be had was asked for by mistake.
  RETURN_IF_ERROR(ChooseBackend(comm_config.backend, comm_config.device,
                                worker.device, env, hardware)
                      .status());
  SayOnce(worker, WhyOnCpu(comm_config.device, worker.device, env, hardware));
  return Guarded(trainer, config, worker);
}

// Connects the ranks and lays them out as the trainer's mesh.
absl::Status RunConnected(const Trainer& trainer, const TrainConfig& config,
                          const CommConfig& comm_config, Worker& worker) {
  const int world_size = worker.env.world_size;
  ASSIGN_OR_RETURN(worker.layout,
                   LayOutRanks(trainer.axes == nullptr
                                   ? std::vector<MeshAxis>{{"dp", world_size}}
                                   : trainer.axes(world_size),
                               world_size));
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> comm,
                   Communicator::Create(worker.env, comm_config));
  SayOnce(worker, std::string(comm->why_on_cpu()));
  worker.device = comm->device();
  if (trainer.devices != nullptr) {
    ASSIGN_OR_RETURN(worker.devices, trainer.devices(world_size));
    if (!worker.devices.empty()) worker.device = worker.devices.front();
  }
  ASSIGN_OR_RETURN(worker.mesh, DeviceMesh::Create(*comm, worker.layout));
  worker.comm = comm.get();
  const absl::Status status = Guarded(trainer, config, worker);
  worker.comm = nullptr;
  worker.mesh.reset();  // before the communicator
  return status;
}

// Finds this process's place and trains.
absl::Status RunRank(const Trainer& trainer, const TrainConfig& config,
                     const CommConfig& comm_config, const LaunchConfig& launch,
                     Worker& worker) {
  ASSIGN_OR_RETURN(
      worker.env,
      comm_config.backend == "fake"
          ? FakeRankEnvFromFlags()
          : ReadRankEnv({.master_required = comm_config.file_store.empty()}));
  if (!launch.log_dir.empty() && worker.env.launcher != "nproc") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_dir=", launch.log_dir,
                     ": works with --nproc above 1; other launchers have a "
                     "flag of their own"));
  }
  worker.threads = ThreadsPerRank(config.threads, worker.env);
  at::set_num_threads(worker.threads);
  return trainer.distributed
             ? RunConnected(trainer, config, comm_config, worker)
             : RunAlone(trainer, config, comm_config, worker);
}

}  // namespace

int TrainerMain(int argc, char** argv, const Trainer& trainer) {
  DescribeCommandLine(trainer.usage, "trainers/");
  const std::vector<char*> words = ParseFlags(argc, argv);
  absl::StatusOr<TrainConfig> config = TrainConfigFromFlags();
  if (!config.ok()) return ReportFlags(trainer, config.status());
  absl::StatusOr<CommConfig> comm_config = CommConfigFromFlags();
  if (!comm_config.ok()) return ReportFlags(trainer, comm_config.status());
  absl::StatusOr<LaunchConfig> launch = LaunchConfigFromFlags();
  if (!launch.ok()) return ReportFlags(trainer, launch.status());
  absl::Status usage =
      CheckUsage(trainer, words, *config, *comm_config, *launch);
  if (!usage.ok()) return ReportFlags(trainer, usage);
  if (launch->nproc > 1 && !InsideLauncher())
    return LaunchRanks(*launch, argc, argv);

  // Only builds with CUDA could have more to complain of.
  if (config->output.trace.operators &&
      (comm_config->device == "cpu" || !RangesOn()))
    SilenceProfiler();
  PrepareRankProcess();
  KeepFreedMemory();
  Worker worker;
  worker.trainer = trainer.name;
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
