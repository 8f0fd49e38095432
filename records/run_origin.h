// What a run record says of where the run comes from: the machine, the
// compiler, the code, a name of its own, and hashes over its flags.
#ifndef RANKWISE_RECORDS_RUN_ORIGIN_H_
#define RANKWISE_RECORDS_RUN_ORIGIN_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "records/record.h"

namespace rankwise {

// Reads the machine's description from the kernel; takes well under a
// millisecond. What cannot be found out stays "" or 0.
HostInfo CollectHostInfo();

// The first "model name" of a /proc/cpuinfo text, else "".
std::string CpuModel(absl::string_view cpuinfo);

// The compiler of this binary: "g++ 12.2.0".
std::string CompilerVersion();

struct BuildStamp {
  // Of the sources, uncommitted changes included (build_stamp.sh): equal where
  // the code is, whatever was committed in between. "" when unknown.
  std::string source_hash;
  // HEAD when the sources became these: 40 digits, or "" when unknown.
  std::string git_commit;
  // Whether the sources were those of the commit: "clean", "modified", or
  // "unknown".
  std::string git_state = "unknown";
};

// All of it unknown in a program that does not link //records:stamp_this_build,
// as tests, and in one built without our --workspace_status_command (.bazelrc).
BuildStamp ThisBuildStamp();

// A new run id such as "20260131-235959-9f3a02c1": the time in UTC and 32 bits
// of randomness. One process chooses it; the other ranks must be given it.
std::string NewRunId(absl::Time now);

// True for the flags that may differ between two world sizes of one study, such
// as nproc and batch_size, and for those that only say what is written where,
// or what it is compared with, such as record and peak_tflops. Whether the
// batches fit (equal per rank, or equal in total) is for analysis to judge from
// the examples of the steps.
bool FollowsWorldSizeOrOutput(absl::string_view flag);

// 16 hexadecimal digits of 64-bit FNV-1a over "name=value\n" in name order.
std::string HashFlags(const std::map<std::string, std::string>& flags);

// Sets run->config_hash (all flags) and run->scaling_hash (without those for
// which FollowsWorldSizeOrOutput) from run->flags.
void SetConfigHashes(RunRecord* run);

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_RUN_ORIGIN_H_
