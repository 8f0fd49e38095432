#include "trainers/split_flags.h"

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "parallel/launch/comm_flags.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/models/model.h"

TRAINER_FLAG(kSpeed, bool, sequence_parallel, false,
             "between the divided layers, ranks along tp have their part of "
             "the tokens and not all of them");
TRAINER_FLAG(kSpeed, int, tp_overlap, 1,
             "pieces of each product along tp, so that one is exchanged while "
             "the next is multiplied; 1: no overlap");

ABSL_DECLARE_FLAG(int64_t, check_divergence_every);
ABSL_DECLARE_FLAG(bool, skip_communication);

namespace rankwise {

constexpr int kMostPieces = 1024;

ModelSplit TensorSplitFromFlags(int tensor) {
  return {.tensor = tensor,
          .sequence = absl::GetFlag(FLAGS_sequence_parallel),
          .overlap_pieces = absl::GetFlag(FLAGS_tp_overlap)};
}

absl::Status CheckSplitOfModel(const ModelSplit& split) {
  FlagChecks checks;
  checks.InRange("tp_overlap", split.overlap_pieces, 1, kMostPieces);
  if (split.overlap_pieces > 1 && split.tensor == 1) {
    checks.Complain(absl::StrCat(
        "--tp_overlap=", split.overlap_pieces,
        ": needs at least 2 ranks along tp (--tp of hybrid, --nproc of "
        "tensor_parallel)"));
  }
  const int64_t every = absl::GetFlag(FLAGS_check_divergence_every);
  if (every != 0) {
    checks.Complain(absl::StrCat("--check_divergence_every=", every,
                                 ": only ddp compares its replicas; leave it "
                                 "out, or train with ddp"));
  }
  if (absl::GetFlag(FLAGS_skip_communication)) {
    checks.Complain(
        "--skip_communication: ranks that divide a layer cannot go on without "
        "each other's results; only ddp, pipeline and model_parallel can");
  }
  RETURN_IF_ERROR(checks.status());
  ASSIGN_OR_RETURN(TrainConfig train, TrainConfigFromFlags());
  train.model.split = split;
  return MakeModelSpec(train.model).status();
}

}  // namespace rankwise
