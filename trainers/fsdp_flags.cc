#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/zero_flags.h"

TRAINER_FLAG(
    kLayout, int, shard_ranks, 0,
    "number of ranks that share one sharded copy of the state, such as "
    "those of a node; the copies are replicas (HSDP). 0: all ranks");
TRAINER_FLAG(
    kSpeed, bool, reduce_every_microbatch, false,
    "with --accumulate, --zero=2 or 3: reduce the gradients of each "
    "micro-batch, so that no rank keeps whole ones, and not their sum");
TRAINER_FLAG(kSpeed, bool, offload_optimizer, false,
             "on a GPU: the optimizer's state, and the update, on the host");

ABSL_DECLARE_FLAG(int64_t, accumulate);
ABSL_DECLARE_FLAG(std::string, device);
ABSL_DECLARE_FLAG(bool, recompute);

namespace rankwise {

constexpr int kMostRanks = 1 << 20;

ZeroConfig FsdpConfigFromFlags() {
  ZeroConfig config = ZeroConfigFromFlags();
  config.shard_ranks = absl::GetFlag(FLAGS_shard_ranks);
  config.sharding.reduce_every_micro_batch =
      absl::GetFlag(FLAGS_reduce_every_microbatch);
  config.sharding.offload = absl::GetFlag(FLAGS_offload_optimizer);
  config.recompute = absl::GetFlag(FLAGS_recompute);
  return config;
}

absl::Status CheckFsdpFlags() {
  FlagChecks checks;
  const int stage = FlagInRange(checks, FLAGS_zero, 1, 3);
  RETURN_IF_ERROR(checks.status());
  RETURN_IF_ERROR(CheckZeroFlags());
  const int shard_ranks = FlagInRange(checks, FLAGS_shard_ranks, 0, kMostRanks);
  ASSIGN_OR_RETURN(const int ranks, WorldSizeFromFlags());
  if (shard_ranks > 0 && ranks % shard_ranks != 0) {
    checks.Complain(
        absl::StrCat("--shard_ranks=", shard_ranks, ": does not divide the ",
                     Counted(ranks, "rank"), "; give ", DivisorsOf(ranks)));
  }
  if (absl::GetFlag(FLAGS_reduce_every_microbatch) &&
      (stage == 1 || absl::GetFlag(FLAGS_accumulate) == 1)) {
    checks.Complain(
        "--reduce_every_microbatch: needs --zero=2 or 3, and --accumulate "
        "above 1");
  }
  if (absl::GetFlag(FLAGS_offload_optimizer) &&
      absl::GetFlag(FLAGS_device) == "cpu") {
    checks.Complain(
        "--offload_optimizer: needs a GPU, and --device=cpu asks for none");
  }
  return checks.status();
}

}  // namespace rankwise
