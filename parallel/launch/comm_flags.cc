#include "parallel/launch/comm_flags.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/launch/cores.h"
#include "parallel/launch/placement.h"
#include "records/command_line.h"
#include "third_party/absl/status_macros.h"

// Ranks.
ABSL_FLAG(
    int, nproc, 1,
    "ranks to start on this machine; ignored inside torchrun, mpirun or srun");
ABSL_FLAG(std::string, backend, "auto",
          "auto, gloo, shm (gloo plus shared memory between ranks on one "
          "machine), mpi (OpenMPI), nccl or fake; auto: nccl when every local "
          "rank has its own GPU, shm if all ranks run on one machine's CPUs, "
          "mpi if mpirun or srun --mpi=pmix started ranks on several machines, "
          "otherwise gloo");
ABSL_FLAG(std::string, device, "auto",
          "auto, cpu, cuda (rank i takes cuda:LOCAL_RANK) or cuda:N");
ABSL_FLAG(int, threads, 0,
          "compute threads per rank; if 0, cores / local ranks");
ABSL_FLAG(absl::Duration, rendezvous_timeout, absl::Seconds(60),
          "time limit for all ranks to meet at the start");
ABSL_FLAG(absl::Duration, collective_timeout, absl::Minutes(5),
          "time limit of one collective");
ABSL_FLAG(
    bool, check_collectives, false,
    "compare every collective's kind, shapes and dtype across ranks; slow");
ABSL_FLAG(std::string, file_store, "",
          "file in a shared folder through which ranks meet: PATH or "
          "file://PATH; if empty, TCP at MASTER_ADDR");
ABSL_FLAG(std::string, log_dir, "",
          "folder for one log file per rank; if empty, all is printed");

// Costs and size of --backend=fake: ranks 1 to N-1 mirror rank 0.
ABSL_FLAG(int, fake_world_size, 2,
          "ranks simulated by --backend=fake; at most 10000 in comm_bench, "
          "whose ranks are threads");
ABSL_FLAG(double, fake_alpha_us, 0,
          "latency of each collective, in microseconds, of --backend=fake");
ABSL_FLAG(double, fake_beta_ns_per_byte, 0,
          "inverse bandwidth of --backend=fake, in nanoseconds per byte");
ABSL_FLAG(int, fake_straggler_rank, -1,
          "straggler of --backend=fake, late to each collective; -1 if none");
ABSL_FLAG(double, fake_straggler_us, 0, "delay of that rank, in microseconds");

namespace rankwise {
namespace {

FakeBackendConfig FakeFromFlags(FlagChecks& checks) {
  FakeBackendConfig fake;
  fake.alpha_us = absl::GetFlag(FLAGS_fake_alpha_us);
  fake.beta_ns_per_byte = absl::GetFlag(FLAGS_fake_beta_ns_per_byte);
  fake.straggler_rank = absl::GetFlag(FLAGS_fake_straggler_rank);
  fake.straggler_us = absl::GetFlag(FLAGS_fake_straggler_us);
  const int world_size = absl::GetFlag(FLAGS_fake_world_size);
  checks.InRange("fake_world_size", world_size, 1, 1 << 20);
  checks.InRange("fake_alpha_us", fake.alpha_us, 0.0, 1e9);
  checks.InRange("fake_beta_ns_per_byte", fake.beta_ns_per_byte, 0.0, 1e9);
  checks.InRange("fake_straggler_rank", fake.straggler_rank, -1,
                 world_size - 1);
  checks.InRange("fake_straggler_us", fake.straggler_us, 0.0, 1e9);
  return fake;
}

// A flag of the fake backend has no effect with other backends.
void CheckFakeIsMeant(FlagChecks& checks) {
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::StartsWith(name, "fake_") && DiffersFromDefault(*flag))
      checks.Complain(absl::StrCat("--", name, ": only for --backend=fake"));
  }
}

// Returns the error of any of `nproc` ranks on this machine about --device and,
// if it names one, --backend.
absl::Status CheckRanksHere(int nproc) {
  const std::string backend = absl::GetFlag(FLAGS_backend);
  const BackendKind* const named = FindBackend(backend);
  std::string device = absl::GetFlag(FLAGS_device);
  if (named != nullptr && !named->serves_cuda && device == "auto")
    device = "cpu";
  if (named == nullptr && (device == "auto" || device == "cpu"))
    return absl::OkStatus();
  const Hardware hardware = DetectHardware();
  RETURN_IF_ERROR(CheckLaunch(device, nproc, hardware));
  if (named == nullptr) return absl::OkStatus();
  RankEnv env;
  env.world_size = env.local_world_size = nproc;
  env.launcher = "nproc";
  env.has_pmix = true;
  ASSIGN_OR_RETURN(const c10::Device of_first,
                   ChooseDevice(device, env, hardware));
  return ChooseBackend(backend, device, of_first, env, hardware).status();
}

bool IsOurs(absl::string_view file, const std::string& folder) {
  return absl::StrContains(file, folder) ||
         absl::StrContains(file, "parallel/launch/comm_flags");
}

}  // namespace

void FlagChecks::OneOf(const char* name, const std::string& value,
                       const std::vector<std::string>& allowed) {
  if (absl::c_linear_search(allowed, value)) return;
  std::vector<std::string> names = allowed;
  std::erase(names, "");
  Complain(absl::StrCat(
      "--", name, "=", value, ": must be one of ", absl::StrJoin(names, ", "),
      names.size() < allowed.size() ? ", or left empty" : ""));
}

void FlagChecks::ParentExists(const char* name, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path parent =
      std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (std::filesystem::is_directory(parent, ignored)) return;
  Complain(absl::StrCat(
      "--", name, "=", path, ": ",
      std::filesystem::exists(parent, ignored)
          ? absl::StrCat(parent.string(), " is not a folder")
          : absl::StrCat("the folder ", parent.string(), " does not exist")));
}

void FlagChecks::FileOrNew(const char* name, const std::string& path) {
  ParentExists(name, path);
  std::error_code ignored;
  if (path.empty() || !std::filesystem::is_directory(path, ignored)) return;
  Complain(absl::StrCat("--", name, "=", path, ": is a folder, not a file"));
}

void FlagChecks::FolderOrNew(const char* name, const std::string& path) {
  ParentExists(name, path);
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored) ||
      std::filesystem::is_directory(path, ignored)) {
    return;
  }
  Complain(absl::StrCat("--", name, "=", path, ": is not a folder"));
}

void DescribeCommandLine(const char* usage, const std::string& folder) {
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  const auto is_ours = [folder](absl::string_view file) {
    return IsOurs(file, folder);
  };
  config.contains_help_flags = is_ours;
  config.contains_helpshort_flags = is_ours;
  absl::SetFlagsUsageConfig(config);
}

std::map<std::string, std::string> FlagsOf(const std::string& folder) {
  std::map<std::string, std::string> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsOurs(flag->Filename(), folder))
      flags[std::string(name)] = flag->CurrentValue();
  }
  return flags;
}

RankEnv FakeRankEnvFromFlags() {
  RankEnv env;
  env.world_size = absl::GetFlag(FLAGS_fake_world_size);
  return env;
}

absl::StatusOr<CommConfig> CommConfigFromFlags() {
  // The kernel stores TCP_USER_TIMEOUT as an int of milliseconds: 596 hours.
  constexpr absl::Duration kShortest = absl::Seconds(1);
  constexpr absl::Duration kLongest = absl::Hours(576);
  FlagChecks checks;
  CommConfig comm;
  comm.backend = absl::GetFlag(FLAGS_backend);
  comm.device = absl::GetFlag(FLAGS_device);
  comm.rendezvous_timeout = absl::GetFlag(FLAGS_rendezvous_timeout);
  comm.collective_timeout = absl::GetFlag(FLAGS_collective_timeout);
  comm.check_collectives = absl::GetFlag(FLAGS_check_collectives);
  comm.file_store = UserPath(std::string(
      absl::StripPrefix(absl::GetFlag(FLAGS_file_store), "file://")));
  checks.OneOf("backend", comm.backend, BackendChoices());
  for (const auto& [name, timeout] :
       {std::pair("rendezvous_timeout", comm.rendezvous_timeout),
        std::pair("collective_timeout", comm.collective_timeout)}) {
    if (timeout >= kShortest && timeout <= kLongest) continue;
    checks.Complain(absl::StrCat("--", name, "=", absl::FormatDuration(timeout),
                                 ": must be between ",
                                 absl::FormatDuration(kShortest), " and ",
                                 absl::FormatDuration(kLongest)));
  }
  checks.FileOrNew("file_store", comm.file_store);
  comm.fake = FakeFromFlags(checks);
  const BackendKind* const backend = FindBackend(comm.backend);
  const bool is_fake = backend != nullptr && backend->simulates_peers;
  if (!is_fake) CheckFakeIsMeant(checks);
  if (is_fake && absl::GetFlag(FLAGS_nproc) > 1) {
    checks.Complain(absl::StrCat(
        "--backend=", comm.backend,
        ": one process simulates all ranks; leave out --nproc, set "
        "--fake_world_size"));
  }
  if (!checks.status().ok()) return checks.status();
  return comm;
}

absl::StatusOr<LaunchConfig> LaunchConfigFromFlags() {
  FlagChecks checks;
  LaunchConfig launch;
  launch.nproc = absl::GetFlag(FLAGS_nproc);
  launch.log_dir = UserPath(absl::GetFlag(FLAGS_log_dir));
  launch.stop_limit = absl::GetFlag(FLAGS_collective_timeout);
  const BackendKind* const backend = FindBackend(absl::GetFlag(FLAGS_backend));
  launch.serves_pmix = backend != nullptr && backend->needs_pmix;
  checks.InRange<int>("nproc", launch.nproc, 1, 1024);
  checks.FolderOrNew("log_dir", launch.log_dir);
  if (launch.nproc > 1 && !InsideLauncher()) {
    const absl::Status possible = CheckRanksHere(launch.nproc);
    if (!possible.ok()) {
      checks.Complain(absl::StrCat("--nproc=", launch.nproc, " --",
                                   std::string(possible.message())));
    }
  }
  if (!checks.status().ok()) return checks.status();
  return launch;
}

int ThreadsPerRank(int requested, const RankEnv& env) {
  return requested > 0 ? requested : CoresPerRank(env);
}

}  // namespace rankwise
