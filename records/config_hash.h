// Hashes over a run's flags: which runs are repetitions of each other, and
// which differ in nothing but what follows from the world size.

#ifndef RECORDS_CONFIG_HASH_H_
#define RECORDS_CONFIG_HASH_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "records/record.h"

namespace rankwise {

// True for the flags that may differ between two world sizes of one study:
// nproc, pp, dp, devices, split, batch_size, microbatches, accumulate; and for
// those that only say what is written where, or what it is compared with:
// record, csv, trace, trace_ops, trace_steps, traffic_steps, log_dir,
// log_every, checkpoint_dir, checkpoint_every, keep_checkpoints, launch,
// resume, file_store, oversubscribe, peak_tflops. Whether the batches fit
// (equal per rank, or equal in total) is for analysis to judge from the
// examples of the steps.
bool FollowsWorldSizeOrOutput(absl::string_view flag);

// 16 hexadecimal digits of 64-bit FNV-1a over "name=value\n" in name order.
std::string HashFlags(const std::map<std::string, std::string>& flags);

// Sets run->config_hash (all flags) and run->scaling_hash (without those for
// which FollowsWorldSizeOrOutput) from run->flags.
void SetConfigHashes(RunRecord* run);

}  // namespace rankwise

#endif  // RECORDS_CONFIG_HASH_H_
