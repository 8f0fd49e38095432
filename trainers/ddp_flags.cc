#include "trainers/ddp_flags.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/gradient_sync.h"
#include "parallel/ddp/sync_batch_norm.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/rank_env.h"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/models/model.h"

TRAINER_FLAG(
    kLosses, std::string, ddp, "reducer",
    "reducer: PyTorch's bucketed engine, which overlaps with backward; "
    "simple: one all-reduce after it");
TRAINER_FLAG(kSpeed, double, bucket_cap_mb, 25, "MiB per gradient bucket");
TRAINER_FLAG(
    kSpeed, double, first_bucket_mb, 1,
    "MiB of the first bucket, small so that communication starts early");
TRAINER_FLAG(
    kSpeed, double, last_bucket_mb, 0,
    "MiB of the last bucket, small because no backward hides its reduction; "
    "0: what is left over, as in PyTorch");
TRAINER_FLAG(kLosses, std::string, comm_hook, "none",
             "how gradients travel: none (as they are), fp16, bf16");
TRAINER_FLAG(
    kSpeed, std::string, all_reduce, "flat",
    "all-reduce of gradients across hosts: flat: the backend's; "
    "hierarchical: summed within each host first (different rounding order); "
    "auto: the faster for 4 MiB, measured at startup");
TRAINER_FLAG(kSpeed, bool, gradient_as_bucket_view, true,
             "gradients live in the buckets, which saves a copy");
TRAINER_FLAG(kSpeed, bool, find_unused_parameters, false,
             "allow parameters that a step does not use");
TRAINER_FLAG(kSpeed, bool, static_graph, false,
             "the set of used parameters never changes");
TRAINER_FLAG(kSpeed, bool, broadcast_buffers, true,
             "give every rank rank 0's buffers before each forward");
TRAINER_FLAG(kLosses, bool, sync_batch_norm, false,
             "normalise over all ranks' batches together, not over each rank's "
             "own; with --accumulate, over one micro-batch of every rank");

ABSL_DECLARE_FLAG(bool, cuda_graph);
ABSL_DECLARE_FLAG(bool, skip_communication);

namespace rankwise {
namespace {

// `name`: one that CheckDdpFlags allows.
DdpConfig::CommHook CommHookNamed(const std::string& name) {
  if (name == "none") return DdpConfig::CommHook::kNone;
  return name == "fp16" ? DdpConfig::CommHook::kFp16
                        : DdpConfig::CommHook::kBf16;
}

// Refuses the flags that --ddp=simple ignores.
void CheckFlagsOfSimple(FlagChecks& checks) {
  for (const char* name : {"bucket_cap_mb", "first_bucket_mb", "last_bucket_mb",
                           "gradient_as_bucket_view", "find_unused_parameters",
                           "static_graph", "broadcast_buffers"}) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    if (!DiffersFromDefault(*flag)) continue;
    checks.Complain(absl::StrCat("--", name, "=", flag->CurrentValue(),
                                 ": only for --ddp=reducer"));
  }
}

// What every rank would refuse once it has met the others, or built the model.
absl::Status CheckFitsJob() {
  if (absl::GetFlag(FLAGS_skip_communication)) return absl::OkStatus();
  if (absl::GetFlag(FLAGS_all_reduce) == "hierarchical" &&
      absl::GetFlag(FLAGS_backend) != "fake" && !InsideLauncher()) {
    return absl::InvalidArgumentError(
        "--all_reduce=hierarchical: all ranks are on one host; leave it out, "
        "or start ranks on several hosts");
  }
  if (!absl::GetFlag(FLAGS_sync_batch_norm)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const TrainConfig train, TrainConfigFromFlags());
  ASSIGN_OR_RETURN(const ModelSpec spec, MakeModelSpec(train.model));
  if (HasBatchNorm(*std::make_shared<Model>(spec))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--sync_batch_norm: --model=", spec.name, " has no batch norm; leave it ",
      "out, or take --model=simple_cnn_bn"));
}

int64_t MebibytesToBytes(double mebibytes) {
  return static_cast<int64_t>(mebibytes * (1 << 20));
}

}  // namespace

absl::Status CheckDdpFlags() {
  const std::string engine = absl::GetFlag(FLAGS_ddp);
  const std::string hook = absl::GetFlag(FLAGS_comm_hook);
  const bool skips = absl::GetFlag(FLAGS_skip_communication);
  FlagChecks checks;
  checks.OneOf("ddp", engine, {"reducer", "simple"});
  checks.OneOf("comm_hook", hook, {"none", "fp16", "bf16"});
  checks.OneOf("all_reduce", absl::GetFlag(FLAGS_all_reduce),
               {"flat", "hierarchical", "auto"});
  if (hook != "none" && (skips || engine == "simple")) {
    checks.Complain(absl::StrCat(
        "--comm_hook=", hook, ": must be none with ",
        skips ? "--skip_communication" : "--ddp=simple, which has no hooks"));
  }
  if (engine == "simple") CheckFlagsOfSimple(checks);
  if (absl::GetFlag(FLAGS_find_unused_parameters) &&
      (skips || absl::GetFlag(FLAGS_cuda_graph))) {
    checks.Complain(
        skips ? "--find_unused_parameters: ranks exchange which ones they are, "
                "which --skip_communication cannot leave out"
              : "--find_unused_parameters: the host reads which ones they are, "
                "which --cuda_graph cannot capture; leave out one of the two");
  }
  for (const auto& [name, value] :
       {std::pair{"bucket_cap_mb", absl::GetFlag(FLAGS_bucket_cap_mb)},
        std::pair{"first_bucket_mb", absl::GetFlag(FLAGS_first_bucket_mb)}}) {
    if (value > 0 && value <= 1 << 20) continue;
    checks.Complain(absl::StrCat(
        "--", name, "=", value, ": must be above 0 and at most 1048576 (MiB)"));
  }
  const double last = absl::GetFlag(FLAGS_last_bucket_mb);
  if (!(last >= 0 && last <= 1 << 20)) {
    checks.Complain(absl::StrCat("--last_bucket_mb=", last,
                                 ": must be from 0 to 1048576 (MiB)"));
  }
  if (last > 0 && absl::GetFlag(FLAGS_find_unused_parameters) &&
      !absl::GetFlag(FLAGS_static_graph)) {
    checks.Complain(
        "--last_bucket_mb: buckets do not follow the order of the gradients "
        "with --find_unused_parameters; leave out one of the two");
  }
  RETURN_IF_ERROR(checks.status());
  return CheckFitsJob();
}

bool BroadcastsBuffersByFlag() {
  return absl::GetFlag(FLAGS_broadcast_buffers);
}

absl::StatusOr<std::string> SyncBatchNormIfRequested(torch::nn::Module& model,
                                                     const Group& group,
                                                     bool skip_communication) {
  if (!absl::GetFlag(FLAGS_sync_batch_norm)) return "";
  if (skip_communication) {
    return "warning: --sync_batch_norm: with --skip_communication every rank "
           "normalises over its own batch";
  }
  ASSIGN_OR_RETURN(int64_t layers, ConvertToSyncBatchNorm(model, group));
  return absl::StrCat("--sync_batch_norm: ", Counted(layers, "layer"),
                      " normalising over the batches of ",
                      Counted(group.size(), "rank"));
}

absl::StatusOr<ChosenAllReduce> AllReduceFromFlags(const Group& group,
                                                   bool skip_communication) {
  const std::string name = absl::GetFlag(FLAGS_all_reduce);
  if (skip_communication) return ChosenAllReduce{group, ""};
  auto chosen = ChooseAllReduce(group, name == "flat" ? AllReduceKind::kFlat
                                       : name == "hierarchical"
                                           ? AllReduceKind::kHierarchical
                                           : AllReduceKind::kAuto);
  if (chosen.ok()) return chosen;
  return absl::Status(
      chosen.status().code(),
      absl::StrCat("--all_reduce=", name, ": ", chosen.status().message()));
}

absl::StatusOr<std::unique_ptr<DataParallelEngine>> MakeEngine(
    torch::nn::Module& model, const Group& group, bool skip_communication) {
  if (absl::GetFlag(FLAGS_ddp) == "simple") {
    ASSIGN_OR_RETURN(auto simple, SimpleDataParallel::Create(
                                      model, group, skip_communication));
    return std::unique_ptr<DataParallelEngine>(std::move(simple));
  }
  DdpConfig config;
  config.bucket_cap_bytes =
      MebibytesToBytes(absl::GetFlag(FLAGS_bucket_cap_mb));
  config.first_bucket_bytes =
      MebibytesToBytes(absl::GetFlag(FLAGS_first_bucket_mb));
  config.last_bucket_bytes =
      MebibytesToBytes(absl::GetFlag(FLAGS_last_bucket_mb));
  config.gradient_as_bucket_view = absl::GetFlag(FLAGS_gradient_as_bucket_view);
  config.find_unused_parameters = absl::GetFlag(FLAGS_find_unused_parameters);
  config.static_graph = absl::GetFlag(FLAGS_static_graph);
  config.broadcast_buffers = BroadcastsBuffersByFlag();
  config.skip_communication = skip_communication;
  config.comm_hook = CommHookNamed(absl::GetFlag(FLAGS_comm_hook));
  ASSIGN_OR_RETURN(auto reducer,
                   DistributedDataParallel::Create(model, group, config));
  return std::unique_ptr<DataParallelEngine>(std::move(reducer));
}

}  // namespace rankwise
