#include "parallel/launch/run_record.h"

#include <ATen/ops/tensor.h>
#include <torch/version.h>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/cores.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

absl::StatusOr<std::string> AgreeOnRunId(Communicator* comm) {
  std::string id = NewRunId(absl::Now());
  if (comm == nullptr) return id;
  at::Tensor bytes =
      at::tensor(std::vector<int64_t>(id.begin(), id.end()), at::kLong)
          .to(comm->device());
  RETURN_IF_ERROR(comm->Broadcast(bytes, /*root=*/0));
  bytes = bytes.cpu();
  const int64_t* codes = bytes.data_ptr<int64_t>();
  return std::string(codes, codes + bytes.numel());
}

// Simulated ranks have no host.
void SetHosts(const RunningRank& rank, RunRecord* run) {
  std::vector<int> hosts = {0};
  if (rank.comm != nullptr) hosts = rank.comm->hosts();
  const bool simulated = rank.comm != nullptr && !rank.comm->has_peers() &&
                         rank.env.world_size > 1;
  if (simulated || hosts.size() != static_cast<size_t>(rank.env.world_size))
    return;
  run->host_index = hosts[rank.env.rank];
  run->hosts = 1 + *absl::c_max_element(hosts);
  run->ranks_on_host = absl::c_count(hosts, hosts[rank.env.rank]);
}

// "cuda:0", and whether it is virtual: analysis refuses such runs.
std::string DeviceText(const c10::Device& device) {
  const bool is_virtual = device.is_cuda() && IsVirtualGpu(device.index());
  return absl::StrCat(device.str(), is_virtual ? " (virtual)" : "");
}

}  // namespace

absl::StatusOr<RunRecord> DescribeRun(const RunningRank& rank) {
  RunRecord run;
  ASSIGN_OR_RETURN(run.run_id, AgreeOnRunId(rank.comm));
  run.binary = rank.binary;
  const BuildStamp build = ThisBuildStamp();
  run.source_hash = build.source_hash;
  run.git_commit = build.git_commit;
  run.git_state = build.git_state;
  run.flags = rank.flags;
  SetConfigHashes(&run);
  run.rank = rank.env.rank;
  run.world_size = rank.env.world_size;
  if (rank.comm != nullptr) run.backend = std::string(rank.comm->backend());
  run.host = CollectHostInfo();
  run.host.cores = CoresOfLocalRanks(rank.env);
  SetHosts(rank, &run);
  for (const c10::Device& device : rank.devices)
    run.devices.push_back(DeviceText(device));
  run.threads_per_rank = rank.threads;
  const BuildFacts facts = ThisBuild();
  run.versions = {.torch = TORCH_VERSION,
                  .cuda = facts.cuda,
                  .nccl = facts.nccl,
                  .compiler = CompilerVersion()};
  return run;
}

}  // namespace rankwise
