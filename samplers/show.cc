// Prints the examples of each rank in an epoch:
//
//   bazel run //samplers:show -- --size=10 --world_size=3 --epoch=1
//   rank 0: 4 7 3 1
//   rank 1: ...

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "records/command_line.h"
#include "samplers/sampling/samplers.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(int64_t, size, 10, "examples in the dataset");
ABSL_FLAG(int64_t, world_size, 2, "ranks that share the dataset");
ABSL_FLAG(int64_t, epoch, 0, "epoch; each has its own order");
ABSL_FLAG(uint64_t, seed, 0, "the order comes from seed + epoch");
ABSL_FLAG(bool, shuffle, true, "shuffle; otherwise the dataset's own order");
ABSL_FLAG(bool, drop_last, false,
          "drop the tail that does not fill all ranks, instead of repeating "
          "examples");
ABSL_FLAG(std::string, mode, "padded",
          "padded: equally many examples for each rank, as PyTorch does; "
          "exact: every example once, as evaluation needs");
ABSL_FLAG(int64_t, rank, -1, "print this rank only; -1: all ranks");

namespace rankwise {
namespace {

// Keeps the printed indices within memory.
constexpr int64_t kMaxSize = 100'000'000;
constexpr int64_t kMaxWorldSize = 1'000'000;
// Every rank orders all examples itself; this limit takes minutes.
constexpr int64_t kMaxOrdered = 10'000'000'000;

struct Config {
  int64_t size;
  int64_t epoch;
  int64_t first_rank;
  int64_t last_rank;
  DistributedSamplerConfig sampler;
};

absl::StatusOr<Config> ConfigFromFlags() {
  const std::string mode = absl::GetFlag(FLAGS_mode);
  const int64_t size = absl::GetFlag(FLAGS_size);
  const int64_t world_size = absl::GetFlag(FLAGS_world_size);
  const int64_t epoch = absl::GetFlag(FLAGS_epoch);
  const int64_t rank = absl::GetFlag(FLAGS_rank);
  const auto bad = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (mode != "padded" && mode != "exact")
    return bad("--mode=", mode, ": it must be padded or exact");
  if (size < 0 || size > kMaxSize)
    return bad("--size=", size, ": it must be in 0 .. ", kMaxSize);
  if (world_size < 1 || world_size > kMaxWorldSize) {
    return bad("--world_size=", world_size, ": it must be in 1 .. ",
               kMaxWorldSize);
  }
  if (epoch < 0) return bad("--epoch=", epoch, ": it must be 0 or more");
  if (rank < -1 || rank >= world_size) {
    return bad("--rank=", rank, ": with --world_size=", world_size,
               " it must be in 0 .. ", world_size - 1, ", or -1 for all");
  }
  if (rank == -1 && size > kMaxOrdered / world_size) {
    return bad("--size=", size, " --world_size=", world_size,
               ": printing all ranks orders ", size, " examples ", world_size,
               " times; print one by --rank");
  }
  using Mode = DistributedSamplerConfig::Mode;
  return Config{
      .size = size,
      .epoch = epoch,
      .first_rank = rank == -1 ? 0 : rank,
      .last_rank = rank == -1 ? world_size - 1 : rank,
      .sampler = {.num_replicas = world_size,
                  .shuffle = absl::GetFlag(FLAGS_shuffle),
                  .seed = absl::GetFlag(FLAGS_seed),
                  .drop_last = absl::GetFlag(FLAGS_drop_last),
                  .mode = mode == "exact" ? Mode::kExact : Mode::kPadded}};
}

absl::Status Run(const Config& config) {
  for (int64_t rank = config.first_rank; rank <= config.last_rank; ++rank) {
    DistributedSamplerConfig of_rank = config.sampler;
    of_rank.rank = rank;
    ASSIGN_OR_RETURN(std::unique_ptr<DistributedSampler> sampler,
                     DistributedSampler::Create(config.size, of_rank));
    sampler->set_epoch(config.epoch);
    std::string line = absl::StrCat("rank ", rank, ":");
    for (const int64_t index : sampler->Indices())
      absl::StrAppend(&line, " ", index);
    std::cout << line << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "prints which examples each rank sees in an epoch, one line per rank");
  const std::vector<char*> rest = rankwise::ParseFlags(argc, argv);
  absl::Status status;
  if (rest.size() > 1) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "unexpected argument \"", rest[1], "\"; flags look like --size=10"));
  }
  if (status.ok()) {
    const absl::StatusOr<rankwise::Config> config = rankwise::ConfigFromFlags();
    status = config.ok() ? rankwise::Run(*config) : config.status();
  }
  if (status.ok()) return 0;
  std::cerr << "show: " << status.message() << "\n";
  return rankwise::ExitCode(status);
}
