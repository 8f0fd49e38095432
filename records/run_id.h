// Names for runs.

#ifndef RECORDS_RUN_ID_H_
#define RECORDS_RUN_ID_H_

#include <string>

#include "absl/time/time.h"

namespace rankwise {

// A new run id such as "20260131-235959-9f3a02c1": the time in UTC and 32 bits
// of randomness. One process chooses it; the other ranks must be given it.
std::string NewRunId(absl::Time now);

}  // namespace rankwise

#endif  // RECORDS_RUN_ID_H_
