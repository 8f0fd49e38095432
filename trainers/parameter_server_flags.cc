#include "trainers/parameter_server_flags.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "parallel/launch/comm_flags.h"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flag_rules.h"
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
    "steps that each worker takes with its own optimizer before it pushes the "
    "change of its parameters; 1: pushes gradients at every step");
TRAINER_FLAG(kLosses, std::string, outer, "average",
             "with --local_steps, how the servers apply the workers' changes: "
             "average; nesterov: their mean is the gradient of SGD with "
             "Nesterov momentum (DiLoCo); "
             "elastic: servers and workers move towards each other (EASGD)");
TRAINER_FLAG(
    kLosses, double, outer_lr, 0,
    "learning rate of --outer; 0 uses 1 for average, 0.7 for nesterov, 0.9 "
    "for elastic");
TRAINER_FLAG(kLosses, double, outer_momentum, 0.9,
             "momentum of --outer=nesterov");
TRAINER_FLAG(kSpeed, double, bucket_mb, 4, "MiB of parameters per message");
TRAINER_FLAG(kSpeed, std::string, slow_worker, "",
             "RANK:FACTOR, such as 2:3: this worker's computation takes FACTOR "
             "times as long, to show what a straggler costs");

ABSL_DECLARE_FLAG(std::string, checkpoint_every);
ABSL_DECLARE_FLAG(absl::Duration, collective_timeout);
ABSL_DECLARE_FLAG(double, clip_grad_norm);

namespace rankwise {
namespace {

constexpr double kMostFactor = 1000;

struct SlowWorker {
  int rank = -1;
  double factor = 1;
};

// Returns nullopt if the flag is malformed.
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

absl::Status CheckParameterServerFlags(const TrainConfig&) {
  FlagChecks checks;
  const std::string text = absl::GetFlag(FLAGS_consistency);
  const auto consistency = ParseConsistency(text);
  if (!consistency.ok()) {
    checks.Complain(absl::StrCat("--consistency=", text, ": ",
                                 consistency.status().message()));
    return checks.status();
  }
  const int64_t local_steps = absl::GetFlag(FLAGS_local_steps);
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
  return checks.status();
}

}  // namespace rankwise
