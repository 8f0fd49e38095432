#include "records/config_hash.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_format.h"

namespace rankwise {
namespace {

constexpr absl::string_view kFollowing[] = {
    "accumulate",
    "batch_size",
    "checkpoint_dir",
    "checkpoint_every",
    "csv",
    "devices",
    "dp",
    "file_store",
    "keep_checkpoints",
    "launch",
    "log_dir",
    "log_every",
    "microbatches",
    "nproc",
    "oversubscribe",
    "peak_tflops",
    "pp",
    "record",
    "resume",
    "split",
    "trace",
    "trace_ops",
    "trace_steps",
    "traffic_steps",
};

}  // namespace

bool FollowsWorldSizeOrOutput(absl::string_view flag) {
  return std::find(std::begin(kFollowing), std::end(kFollowing), flag) !=
         std::end(kFollowing);
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
