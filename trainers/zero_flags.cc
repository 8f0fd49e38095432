#include "trainers/zero_flags.h"

#include <cstdint>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "records/text.h"
#include "trainers/flags.h"

TRAINER_FLAG(
    kSpeed, int, zero, 0,
    "ZeRO stage, what is sharded among data-parallel ranks: 1: optimizer "
    "state; 2: also gradients; 3: also parameters; 0: nothing");
TRAINER_FLAG(kSpeed, std::string, units, "block",
             "parameters that are gathered together: block (one of the model's "
             "layers, such as a transformer's block), layer (each Linear, "
             "LayerNorm, ... in it), or a number of MiB (blocks in a row)");
TRAINER_FLAG(kSpeed, int, prefetch, 1,
             "units that are gathered ahead of the one that computes");
TRAINER_FLAG(kLosses, std::string, param_dtype, "",
             "type in which sharded parameters are gathered and used, fp32 or "
             "bf16; the optimizer's copy and gradient sums stay fp32. Default: "
             "that of --precision");

ABSL_DECLARE_FLAG(int64_t, check_divergence_every);
ABSL_DECLARE_FLAG(std::string, precision);
ABSL_DECLARE_FLAG(bool, skip_communication);

namespace rankwise {
namespace {

constexpr int kMostPrefetched = 1 << 10;

bool GathersBf16() {
  const std::string type = absl::GetFlag(FLAGS_param_dtype);
  return (type.empty() ? absl::GetFlag(FLAGS_precision) : type) == "bf16";
}

}  // namespace

ZeroConfig ZeroConfigFromFlags() {
  ZeroConfig config;
  config.sharding.stage = absl::GetFlag(FLAGS_zero);
  config.sharding.prefetch = absl::GetFlag(FLAGS_prefetch);
  if (GathersBf16()) config.sharding.parameter_type = at::kBFloat16;
  config.units = absl::GetFlag(FLAGS_units);
  return config;
}

absl::Status CheckZeroFlags() {
  FlagChecks checks;
  FlagInRange(checks, FLAGS_zero, 0, 3);
  FlagInRange(checks, FLAGS_prefetch, 0, kMostPrefetched);
  const std::string type = absl::GetFlag(FLAGS_param_dtype);
  checks.OneOf("param_dtype", type, {"", "fp32", "bf16"});
  if (type == "bf16" && absl::GetFlag(FLAGS_precision) != "bf16")
    checks.Complain("--param_dtype=bf16: needs --precision=bf16");
  const std::string units = absl::GetFlag(FLAGS_units);
  if (!IsUnits(units)) {
    checks.Complain(absl::StrCat("--units=", units,
                                 ": must be block, layer, or a number of MiB "
                                 "above 0 and at most 1048576"));
  }
  if (absl::GetFlag(FLAGS_zero) == 0) return checks.status();
  const int64_t every = absl::GetFlag(FLAGS_check_divergence_every);
  if (every != 0) {
    checks.Complain(absl::StrCat("--check_divergence_every=", every,
                                 ": sharded ranks have no replicas to compare; "
                                 "leave it out, or train with ddp"));
  }
  if (absl::GetFlag(FLAGS_skip_communication)) {
    checks.Complain(
        "--skip_communication: sharded ranks cannot go on without each other's "
        "parameters; only ddp, pipeline and model_parallel can");
  }
  return checks.status();
}

}  // namespace rankwise
