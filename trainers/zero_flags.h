// The flags of sharded data parallelism: of the trainer fsdp and, as far as it
// has them, hybrid.
#ifndef RANKWISE_TRAINERS_ZERO_FLAGS_H_
#define RANKWISE_TRAINERS_ZERO_FLAGS_H_

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "trainers/loop/sharded_model.h"

ABSL_DECLARE_FLAG(int, zero);

namespace rankwise {

// --zero, --units, --prefetch and --param_dtype, which both have.
ZeroConfig ZeroConfigFromFlags();
// Before any rank is started.
absl::Status CheckZeroFlags();

// The same with what only fsdp has (fsdp_flags.cc).
ZeroConfig FsdpConfigFromFlags();
absl::Status CheckFsdpFlags();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_ZERO_FLAGS_H_
