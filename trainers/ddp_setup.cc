#include "trainers/ddp_setup.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/hierarchical.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/sync_batch_norm.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/rank_env.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flag_rules.h"
#include "trainers/flags.h"
#include "trainers/graphs/captured_step.h"
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
    "if 0, whatever is left over, as in PyTorch");
TRAINER_FLAG(kLosses, std::string, comm_hook, "none",
             "gradient compression: none, fp16, bf16");
TRAINER_FLAG(
    kSpeed, std::string, all_reduce, "flat",
    "all-reduce of gradients across hosts: flat: the backend's own; "
    "hierarchical: sums within each host first (different rounding order); "
    "auto: the faster one for 4 MiB, measured at startup");
TRAINER_FLAG(kSpeed, bool, gradient_as_bucket_view, true,
             "gradients are views of the buckets, which saves a copy");
TRAINER_FLAG(kSpeed, bool, find_unused_parameters, false,
             "allow parameters that a step does not use");
TRAINER_FLAG(kSpeed, bool, static_graph, false,
             "the set of used parameters never changes");
TRAINER_FLAG(kSpeed, bool, broadcast_buffers, true,
             "broadcast rank 0's buffers before each forward");
TRAINER_FLAG(
    kLosses, bool, sync_batch_norm, false,
    "normalise over the batches of all ranks together instead of each "
    "rank's own; with --accumulate, over one micro-batch of every rank");

ABSL_DECLARE_FLAG(bool, skip_communication);

namespace rankwise {
namespace {

// Warm-up steps before capture: PyTorch's Reducer rebuilds its buckets after
// the first step and reads the device's clock in the first ten.
constexpr int64_t kWarmUpSteps = 11;

int64_t MebibytesToBytes(double mebibytes) {
  return static_cast<int64_t>(mebibytes * (1 << 20));
}

DdpConfig DdpConfigFromFlags(bool skip_communication) {
  const std::string hook = absl::GetFlag(FLAGS_comm_hook);
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
  config.broadcast_buffers = absl::GetFlag(FLAGS_broadcast_buffers);
  config.skip_communication = skip_communication;
  config.comm_hook = hook == "fp16"   ? DdpConfig::CommHook::kFp16
                     : hook == "bf16" ? DdpConfig::CommHook::kBf16
                                      : DdpConfig::CommHook::kNone;
  return config;
}

absl::Status SyncBatchNorms(TrainingRun& run, const Group& group,
                            bool skip_communication) {
  if (!absl::GetFlag(FLAGS_sync_batch_norm)) return absl::OkStatus();
  if (skip_communication) {
    run.Say(
        "warning: --sync_batch_norm: with --skip_communication every rank "
        "normalises over its own batch");
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(int64_t layers, ConvertToSyncBatchNorm(run.model(), group));
  run.Say(absl::StrCat("--sync_batch_norm: ", Counted(layers, "layer"),
                       " normalising over the batches of ",
                       Counted(group.size(), "rank")));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDdpFlags(const TrainConfig& config) {
  if (absl::GetFlag(FLAGS_skip_communication)) return absl::OkStatus();
  if (absl::GetFlag(FLAGS_all_reduce) == "hierarchical" &&
      absl::GetFlag(FLAGS_backend) != "fake" && !InsideLauncher()) {
    return absl::InvalidArgumentError(
        "--all_reduce=hierarchical: all ranks are on one host; leave it out, "
        "or start ranks on several hosts");
  }
  if (!absl::GetFlag(FLAGS_sync_batch_norm)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ModelSpec spec, MakeModelSpec(config.model));
  if (HasBatchNorm(*std::make_shared<Model>(spec))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--sync_batch_norm: --model=", spec.name, " has no batch norm; leave it ",
      "out, or take --model=simple_cnn_bn"));
}

absl::StatusOr<std::unique_ptr<DdpSetup>> DdpSetup::Create(
    const TrainConfig& config, const Worker& worker, TrainingRun& run) {
  auto setup = std::unique_ptr<DdpSetup>(new DdpSetup(config, worker, run));
  RETURN_IF_ERROR(
      SyncBatchNorms(run, worker.mesh->group("dp"), config.skip_communication));
  RETURN_IF_ERROR(setup->ChooseAllReduceByFlag());
  RETURN_IF_ERROR(setup->MakeEngine());
  DdpSetup* const made = setup.get();
  run.SetEngineState({[made] { return made->engine_->BucketOrder(); },
                      [made](const std::string& order) {
                        made->engine_->UseBucketOrder(order);
                      },
                      /*own_buffers=*/!absl::GetFlag(FLAGS_broadcast_buffers)});
  return setup;
}

absl::Status DdpSetup::ChooseAllReduceByFlag() {
  all_reduce_ = worker_.mesh->group("dp");
  if (config_.skip_communication) return absl::OkStatus();
  const std::string name = absl::GetFlag(FLAGS_all_reduce);
  const auto chosen = ChooseAllReduce(
      all_reduce_, name == "flat"           ? AllReduceKind::kFlat
                   : name == "hierarchical" ? AllReduceKind::kHierarchical
                                            : AllReduceKind::kAuto);
  if (!chosen.ok()) {
    return absl::Status(
        chosen.status().code(),
        absl::StrCat("--all_reduce=", name, ": ", chosen.status().message()));
  }
  all_reduce_ = chosen->group;
  if (!chosen->line.empty()) run_.Say(chosen->line);
  return absl::OkStatus();
}

absl::Status DdpSetup::MakeEngine() {
  const bool skips = config_.skip_communication;
  if (absl::GetFlag(FLAGS_ddp) == "simple") {
    ASSIGN_OR_RETURN(
        engine_, SimpleDataParallel::Create(run_.model(), all_reduce_, skips));
  } else {
    ASSIGN_OR_RETURN(
        engine_, DistributedDataParallel::Create(run_.model(), all_reduce_,
                                                 DdpConfigFromFlags(skips)));
  }
  return absl::OkStatus();
}

StepFunction DdpSetup::Wrapped(StepFunction step) {
  const StepFunction captured = CaptureIfRequested(
      config_, worker_, run_,
      {.step = std::move(step),
       .warm_up_steps = kWarmUpSteps,
       // A Reducer cannot be used again after half a backward.
       .recover = [this] { return MakeEngine(); }});
  const int64_t every = config_.check_divergence_every;
  if (every == 0) return captured;
  return [this, captured,
          every](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    ASSIGN_OR_RETURN(StepOutcome outcome, captured(input));
    if (input.step % every == 0) {
      RETURN_IF_ERROR(CheckDivergence(run_.model(), worker_.mesh->group("dp")));
    }
    return outcome;
  };
}

}  // namespace rankwise
