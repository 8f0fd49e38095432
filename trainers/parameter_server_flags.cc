#include "trainers/parameter_server_flags.h"

#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"

TRAINER_FLAG(kLayout, int, servers, 1,
             "parameter servers: the first ranks of the job, which divide the "
             "parameters among them; the other ranks are workers");
TRAINER_FLAG(
    kLosses, std::string, consistency, "bsp",
    "bsp: a step applies the mean of all workers' gradients; ssp:K: each "
    "gradient is applied as it arrives, and no worker is more than K steps "
    "ahead of the slowest; async: as ssp without a bound");
TRAINER_FLAG(
    kLosses, bool, scale_lr_by_staleness, false,
    "with ssp and async: divide the learning rate of a gradient by 1 + the "
    "number of updates since its parameters were read, instead of by the "
    "number of workers that have not been lost");
TRAINER_FLAG(
    kLosses, int64_t, local_steps, 1,
    "steps that each worker takes with an optimizer of its own before it "
    "pushes the change of its parameters; 1: every step pushes gradients");
TRAINER_FLAG(
    kLosses, std::string, outer, "average",
    "with --local_steps, what the servers do with the workers' changes: "
    "average; nesterov: their mean is the gradient of SGD with Nesterov "
    "momentum (DiLoCo); elastic: servers and workers move towards each other "
    "(EASGD)");
TRAINER_FLAG(
    kLosses, double, outer_lr, 0,
    "learning rate of --outer; 0: 1 for average, 0.7 for nesterov, 0.9 "
    "for elastic");
TRAINER_FLAG(kLosses, double, outer_momentum, 0.9,
             "momentum of --outer=nesterov");
TRAINER_FLAG(kSpeed, double, bucket_mb, 4,
             "MiB of parameters that travel in one message");
TRAINER_FLAG(kSpeed, std::string, slow_worker, "",
             "RANK:FACTOR, such as 2:3: this worker's computation takes FACTOR "
             "times as long, to show what a straggler costs");

ABSL_DECLARE_FLAG(int64_t, check_divergence_every);
ABSL_DECLARE_FLAG(std::string, checkpoint_every);
ABSL_DECLARE_FLAG(absl::Duration, collective_timeout);
ABSL_DECLARE_FLAG(double, clip_grad_norm);
ABSL_DECLARE_FLAG(bool, cuda_graph);
ABSL_DECLARE_FLAG(bool, dry_run);
ABSL_DECLARE_FLAG(bool, memory);
ABSL_DECLARE_FLAG(std::string, precision);
ABSL_DECLARE_FLAG(bool, skip_communication);
ABSL_DECLARE_FLAG(std::string, trace);
ABSL_DECLARE_FLAG(int64_t, traffic_steps);

namespace rankwise {
namespace {

constexpr int kMostServers = 1 << 20;
constexpr int64_t kMostLocalSteps = int64_t{1} << 40;
constexpr double kMostFactor = 1000;

struct SlowWorker {
  int rank = -1;
  double factor = 1;
};

// Nothing where the flag is malformed.
std::optional<SlowWorker> SlowWorkerFromFlag() {
  const std::string text = absl::GetFlag(FLAGS_slow_worker);
  if (text.empty()) return SlowWorker();
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  SlowWorker slow;
  const bool fits = absl::SimpleAtoi(parts.first, &slow.rank) &&
                    absl::SimpleAtod(parts.second, &slow.factor) &&
                    slow.rank >= absl::GetFlag(FLAGS_servers) &&
                    slow.factor >= 1 && slow.factor <= kMostFactor;
  return fits ? std::optional(slow) : std::nullopt;
}

double OuterLearningRate() {
  const double given = absl::GetFlag(FLAGS_outer_lr);
  const std::string outer = absl::GetFlag(FLAGS_outer);
  if (given > 0) return given;
  return outer == "average" ? 1 : outer == "nesterov" ? 0.7 : 0.9;
}

void CheckOuterFlags(FlagChecks& checks, int64_t local_steps) {
  const std::string outer = absl::GetFlag(FLAGS_outer);
  checks.OneOf("outer", outer, {"average", "nesterov", "elastic"});
  const double rate = FlagInRange(checks, FLAGS_outer_lr, 0, 100);
  FlagInRange(checks, FLAGS_outer_momentum, 0, 1);
  if (local_steps == 1 && outer != "average") {
    checks.Complain(
        absl::StrCat("--outer=", outer, ": needs --local_steps above 1"));
  }
  if (local_steps == 1 && rate != 0) {
    checks.Complain(
        absl::StrCat("--outer_lr=", rate, ": needs --local_steps above 1"));
  }
  const auto& momentum = absl::GetFlagReflectionHandle(FLAGS_outer_momentum);
  if (outer != "nesterov" && DiffersFromDefault(momentum)) {
    checks.Complain(absl::StrCat("--outer_momentum=", momentum.CurrentValue(),
                                 ": only for --outer=nesterov"));
  }
}

// Refuses the flags of trainers whose ranks take every step together.
void CheckOtherFlags(FlagChecks& checks) {
  const std::string backend = absl::GetFlag(FLAGS_backend);
  if (backend == "nccl" || backend == "fake") {
    checks.Complain(absl::StrCat(
        "--backend=", backend,
        backend == "nccl"
            ? ": ends all ranks when one dies, and servers have no GPUs; use "
              "--backend=gloo, which workers with GPUs can use, too"
            : ": pretended ranks push no gradients; use --backend=gloo"));
  }
  for (const auto& [given, flag] : std::vector<std::pair<bool, const char*>>{
           {absl::GetFlag(FLAGS_skip_communication), "skip_communication"},
           {absl::GetFlag(FLAGS_cuda_graph), "cuda_graph"},
           {absl::GetFlag(FLAGS_dry_run), "dry_run"},
           {absl::GetFlag(FLAGS_memory), "memory"},
           {absl::GetFlag(FLAGS_check_divergence_every) > 0,
            "check_divergence_every"},
           {absl::GetFlag(FLAGS_traffic_steps) > 0, "traffic_steps"},
           {!absl::GetFlag(FLAGS_trace).empty(), "trace"},
           {absl::GetFlag(FLAGS_precision) == "fp16", "precision=fp16"}}) {
    if (!given) continue;
    checks.Complain(absl::StrCat(
        "--", flag,
        ": works with ranks that take every step together, not "
        "with parameter_server; leave it out, or use the trainer ddp"));
  }
}

}  // namespace

int ServersFromFlags() { return absl::GetFlag(FLAGS_servers); }

ServerJobConfig ServerJobConfigFromFlags(int workers) {
  ServerJobConfig config;
  config.servers = ServersFromFlags();
  config.consistency = absl::GetFlag(FLAGS_consistency);
  config.server.consistency = *ParseConsistency(config.consistency);
  config.server.scale_by_staleness = absl::GetFlag(FLAGS_scale_lr_by_staleness);
  config.server.bucket_bytes =
      static_cast<int64_t>(absl::GetFlag(FLAGS_bucket_mb) * (1 << 20));
  config.server.collective_timeout = absl::GetFlag(FLAGS_collective_timeout);
  config.local_steps = absl::GetFlag(FLAGS_local_steps);
  const std::string outer = absl::GetFlag(FLAGS_outer);
  config.outer.name = "sgd";
  config.outer.learning_rate = OuterLearningRate();
  config.outer.nesterov = outer == "nesterov";
  if (config.outer.nesterov)
    config.outer.momentum = absl::GetFlag(FLAGS_outer_momentum);
  if (outer == "elastic")
    config.attraction = config.outer.learning_rate / workers;
  const SlowWorker slow = *SlowWorkerFromFlag();
  config.slow_rank = slow.rank;
  config.slow_factor = slow.factor;
  return config;
}

absl::Status CheckParameterServerFlags() {
  FlagChecks checks;
  FlagInRange(checks, FLAGS_servers, 1, kMostServers);
  const std::string text = absl::GetFlag(FLAGS_consistency);
  const auto consistency = ParseConsistency(text);
  if (!consistency.ok()) {
    checks.Complain(absl::StrCat("--consistency=", text, ": ",
                                 consistency.status().message()));
    return checks.status();
  }
  const int64_t local_steps =
      FlagInRange(checks, FLAGS_local_steps, 1, kMostLocalSteps);
  CheckOuterFlags(checks, local_steps);
  FlagInRange(checks, FLAGS_bucket_mb, 1e-6, 1 << 20);
  ASSIGN_OR_RETURN(const int ranks, WorldSizeFromFlags());
  const std::optional<SlowWorker> slow = SlowWorkerFromFlag();
  if (!slow.has_value()) {
    checks.Complain(absl::StrCat(
        "--slow_worker=", absl::GetFlag(FLAGS_slow_worker),
        ": must be RANK:FACTOR with the rank of a worker, at least --servers, "
        "and a factor between 1 and ",
        kMostFactor));
  } else if (slow->rank >= ranks) {
    checks.Complain(absl::StrCat(
        "--slow_worker=", absl::GetFlag(FLAGS_slow_worker), ": the job has ",
        Counted(ranks, "rank"), ", and the last one is rank ", ranks - 1));
  }
  if (absl::GetFlag(FLAGS_scale_lr_by_staleness) && consistency->synchronous) {
    checks.Complain(
        absl::StrCat("--scale_lr_by_staleness: with --consistency=", text,
                     " no gradient is stale; give ssp:K with K "
                     "above 0, or async"));
  }
  const std::string every = absl::GetFlag(FLAGS_checkpoint_every);
  int64_t steps = 0;
  if (local_steps > 1 && absl::SimpleAtoi(every, &steps) &&
      steps % local_steps != 0) {
    checks.Complain(absl::StrCat(
        "--checkpoint_every=", every, ": must be a multiple of --local_steps=",
        local_steps, ", as the servers have nothing new in between"));
  }
  if (local_steps == 1 && !consistency->synchronous &&
      absl::GetFlag(FLAGS_clip_grad_norm) > 0) {
    checks.Complain(absl::StrCat(
        "--clip_grad_norm: servers clip the mean of all workers' gradients, "
        "which --consistency=",
        text, " does not compute; leave one of the two flags out"));
  }
  CheckOtherFlags(checks);
  return checks.status();
}

}  // namespace rankwise
