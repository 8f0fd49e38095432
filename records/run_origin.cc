#include "records/run_origin.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <random>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "records/usable_resources.h"

namespace rankwise {
namespace {

// Reads only the first processor's entry: the file has one per core.
std::string FirstCpuinfoEntry() {
  std::ifstream file("/proc/cpuinfo");
  std::string entry, line;
  while (std::getline(file, line) && !line.empty()) {
    absl::StrAppend(&entry, line, "\n");
  }
  return entry;
}

constexpr absl::string_view kFollowTheWorldSize =
    "accumulate batch_size cp devices dp global_batch_size mesh_order "
    "microbatches nproc pp replicas servers shard_ranks split tp";
constexpr absl::string_view kSayWhatIsWrittenOrCompared =
    "async_checkpoint checkpoint_dir checkpoint_every csv dry_run export_dtype "
    "file_store keep_checkpoints launch log_dir log_every max_restarts memory "
    "on_nan oversubscribe peak peak_tflops profile progress record resume "
    "trace trace_ops trace_steps traffic_steps";

bool Names(absl::string_view list, absl::string_view flag) {
  return absl::c_linear_search(
      std::vector<absl::string_view>(absl::StrSplit(list, ' ')), flag);
}

}  // namespace

std::string CpuModel(absl::string_view cpuinfo) {
  for (absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    if (absl::StripAsciiWhitespace(line.substr(0, colon)) != "model name") {
      continue;
    }
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

HostInfo CollectHostInfo() {
  HostInfo host;
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) == 0) host.hostname = name;
  host.cpu_model = CpuModel(FirstCpuinfoEntry());
  host.cores = UsableCores();
  host.memory_bytes = UsableMemoryBytes();
  return host;
}

std::string CompilerVersion() {
#if defined(__clang__)
  return absl::StrCat("clang++ ", __clang_major__, ".", __clang_minor__, ".",
                      __clang_patchlevel__);
#else
  return absl::StrCat("g++ ", __GNUC__, ".", __GNUC_MINOR__, ".",
                      __GNUC_PATCHLEVEL__);
#endif
}

// Defined in the generated file of :stamp_this_build, if linked.
extern const char kStampedSourceHash[] __attribute__((weak));
extern const char kStampedGitCommit[] __attribute__((weak));
extern const char kStampedGitState[] __attribute__((weak));

BuildStamp ThisBuildStamp() {
  BuildStamp stamp;
  if (kStampedSourceHash == nullptr) return stamp;
  stamp.source_hash = kStampedSourceHash;
  stamp.git_commit = kStampedGitCommit;
  if (*kStampedGitState != '\0') stamp.git_state = kStampedGitState;
  return stamp;
}

std::string NewRunId(absl::Time now) {
  std::random_device random;
  return absl::StrCat(
      absl::FormatTime("%Y%m%d-%H%M%S", now, absl::UTCTimeZone()), "-",
      absl::StrFormat("%08x", random()));
}

bool FollowsWorldSizeOrOutput(absl::string_view flag) {
  return Names(kFollowTheWorldSize, flag) ||
         Names(kSayWhatIsWrittenOrCompared, flag);
}

std::string HashFlags(const std::map<std::string, std::string>& flags) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](const std::string& text, char end) {
    for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
    hash = (hash ^ static_cast<unsigned char>(end)) * 0x100000001b3;
  };
  for (const auto& [name, value] : flags) {
    add(name, '=');
    add(value, '\n');
  }
  return absl::StrFormat("%016x", hash);
}

void SetConfigHashes(RunRecord* run) {
  run->config_hash = HashFlags(run->flags);
  std::map<std::string, std::string> rest = run->flags;
  std::erase_if(
      rest, [](const auto& f) { return FollowsWorldSizeOrOutput(f.first); });
  run->scaling_hash = HashFlags(rest);
}

}  // namespace rankwise
