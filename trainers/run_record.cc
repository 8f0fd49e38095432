#include "trainers/run_record.h"

#include <ATen/ops/tensor.h>
#include <torch/version.h>

#include <map>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "parallel/comm/communicator.h"
#include "records/config_hash.h"
#include "records/git_commit.h"
#include "records/host.h"
#include "records/run_id.h"
#ifdef RANKWISE_CUDA
#include <cuda_runtime_api.h>
#include <nccl.h>
#endif

namespace rankwise {
namespace {

std::map<std::string, std::string> OwnFlags() {
  std::map<std::string, std::string> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::StrContains(flag->Filename(), "trainers/")) {
      flags[std::string(name)] = flag->CurrentValue();
    }
  }
  return flags;
}

absl::StatusOr<std::string> AgreeOnRunId(const Worker& worker) {
  std::string id = NewRunId(absl::Now());
  if (worker.comm == nullptr) return id;
  at::Tensor bytes =
      at::tensor(std::vector<int64_t>(id.begin(), id.end()), at::kLong)
          .to(worker.device);
  absl::Status status = worker.comm->Broadcast(bytes, /*root=*/0);
  if (!status.ok()) return status;
  bytes = bytes.cpu();
  const int64_t* codes = bytes.data_ptr<int64_t>();
  return std::string(codes, codes + bytes.numel());
}

VersionInfo Versions() {
  VersionInfo versions;
  versions.torch = TORCH_VERSION;
  versions.compiler = CompilerVersion();
#ifdef RANKWISE_CUDA
  versions.cuda =
      absl::StrCat(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10);
  versions.nccl = absl::StrCat(NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH);
#endif
  return versions;
}

}  // namespace

absl::StatusOr<RunRecord> DescribeRun(const Worker& worker) {
  RunRecord run;
  absl::StatusOr<std::string> id = AgreeOnRunId(worker);
  if (!id.ok()) return id.status();
  run.run_id = *id;
  run.binary = worker.trainer;
  run.git_commit = GitCommit(worker.workspace);
  run.flags = OwnFlags();
  SetConfigHashes(&run);
  run.rank = worker.env.rank;
  run.world_size = worker.env.world_size;
  if (worker.comm != nullptr) run.backend = std::string(worker.comm->backend());
  run.host = CollectHostInfo();
  for (const c10::Device& device : worker.devices)
    run.devices.push_back(device.str());
  if (run.devices.empty()) run.devices = {worker.device.str()};
  run.threads_per_rank = worker.threads;
  run.versions = Versions();
  return run;
}

std::string DescribeBackend(const Worker& worker) {
  if (worker.comm == nullptr) return "";
  return absl::StrCat(", ", std::string(worker.comm->backend()));
}

}  // namespace rankwise
