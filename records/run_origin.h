// The origin of a run, for its run record: machine, compiler, code, run id, and
// hashes of its flags.
#ifndef RANKWISE_RECORDS_RUN_ORIGIN_H_
#define RANKWISE_RECORDS_RUN_ORIGIN_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "records/record.h"

namespace rankwise {

// Reads the machine's description from the kernel, in well under a millisecond.
// Unknown fields stay "" or 0.
HostInfo CollectHostInfo();

// Returns the first "model name" of a /proc/cpuinfo text, else "".
std::string CpuModel(absl::string_view cpuinfo);

// Returns the compiler of this binary: "g++ 12.2.0".
std::string CompilerVersion();

struct BuildStamp {
  // Hash of the sources, including uncommitted changes (build_stamp.sh): equal
  // for equal code, regardless of commits. "" if unknown.
  std::string source_hash;
  // HEAD when these sources were first built: 40 digits, or "" if unknown
  std::string git_commit;
  // whether the sources equal that commit's: "clean", "modified", "unknown"
  std::string git_state = "unknown";
};

// Returns the stamp of this binary. All fields are unknown in programs that do
// not link //records:stamp_this_build, such as tests, and in builds without our
// --workspace_status_command (.bazelrc).
BuildStamp ThisBuildStamp();

// Returns a new run id such as "20260131-235959-9f3a02c1": UTC time and 32
// random bits. One process creates it and distributes it to the other ranks.
std::string NewRunId(absl::Time now);

// True for flags that may differ between the world sizes of one study, such as
// nproc and batch_size, and for flags that only affect output or reference
// values, such as record and peak_tflops. The analysis checks from the steps'
// examples whether the batches fit (equal per rank, or equal in total).
bool FollowsWorldSizeOrOutput(absl::string_view flag);

// Returns 16 hexadecimal digits: 64-bit FNV-1a over "name=value\n" in name
// order.
std::string HashFlags(const std::map<std::string, std::string>& flags);

// Computes run->config_hash (all flags) and run->scaling_hash (all flags except
// those for which FollowsWorldSizeOrOutput) from run->flags.
void SetConfigHashes(RunRecord* run);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RUN_ORIGIN_H_
