#include "trainers/resume/progress.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/tensor.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "parallel/comm/gather.h"
#include "samplers/datasets/split_mix.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint_reader.h"
#include "trainers/checkpoint/checksum.h"

namespace rankwise {
namespace {

// Equal in all parts of one save, different for every save.
constexpr char kSaveKey[] = "save";

// Indices into a rank's sums.
enum Sum : int64_t { kLoss, kExamples, kSeconds, kUnixSeconds };

// Older checkpoints store the time since boot instead, which is smaller.
constexpr double kEarliestUnixSeconds = 1e9;

double UnixSeconds() {
  return 1e-6 * static_cast<double>(absl::ToUnixMicros(absl::Now()));
}

// Prefixes of the entries that a checkpoint has for every data-parallel rank.
constexpr char kRng[] = "rng.";
constexpr char kSums[] = "epoch_sums.";

at::Generator DeviceGenerator(const Worker& worker) {
  if (worker.device.is_cpu()) return at::detail::getDefaultCPUGenerator();
  return at::globalContext().defaultGenerator(worker.device);
}

torch::Tensor GeneratorState(const Worker& worker) {
  at::Generator generator = DeviceGenerator(worker);
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

// Returns `mine` of every data-parallel rank, from the ranks along dp that
// include the first one: other ranks of a copy of the model saw the same data.
absl::StatusOr<std::vector<torch::Tensor>> GatherShares(
    const Worker& worker, const torch::Tensor& mine) {
  ASSIGN_OR_RETURN(std::vector<torch::Tensor> all,
                   GatherToHost(mine, worker.comm));
  std::vector<torch::Tensor> shares;
  for (const int rank : worker.layout.Line("dp", 0))
    shares.push_back(all[static_cast<size_t>(rank)]);
  return shares;
}

void AddShares(const std::vector<torch::Tensor>& shares, const char* prefix,
               std::vector<TensorBlock>& tensors) {
  for (size_t i = 0; i < shares.size(); ++i)
    tensors.push_back({absl::StrCat(prefix, i), shares[i]});
}

// Reads the shares added by AddShares.
absl::StatusOr<std::vector<torch::Tensor>> ReadShares(CheckpointReader& reader,
                                                      const char* prefix) {
  std::vector<torch::Tensor> shares;
  while (reader.Has(absl::StrCat(prefix, shares.size()))) {
    ASSIGN_OR_RETURN(torch::Tensor share,
                     reader.Read(absl::StrCat(prefix, shares.size())));
    shares.push_back(std::move(share));
  }
  if (!shares.empty()) return shares;
  return absl::DataLossError(
      "--resume: the checkpoint has no state of data-parallel rank 0");
}

// Returns the save's identifier: the sums contain the time, so saves differ.
std::string SaveId(const std::vector<torch::Tensor>& sums) {
  Checksum checksum;
  for (const torch::Tensor& each : sums)
    checksum.Add(each.const_data_ptr(), each.nbytes());
  return absl::StrFormat("%016x", checksum.value());
}

absl::Status RestoreGenerator(CheckpointReader& reader, const Worker& worker,
                              uint64_t seed) {
  ASSIGN_OR_RETURN(const auto states, ReadShares(reader, kRng));
  at::Generator generator = DeviceGenerator(worker);
  std::lock_guard<std::mutex> lock(generator.mutex());
  const auto rank = static_cast<size_t>(worker.dp_rank());
  const bool known = rank < states.size();
  // A CPU generator's state is a few thousand bytes; a GPU generator's is its
  // seed and offset.
  if (known && states[rank].sizes() == generator.get_state().sizes()) {
    generator.set_state(states[rank]);
    return absl::OkStatus();
  }
  if (known && worker.is_first()) {
    std::fprintf(stderr,
                 "warning: --resume: the checkpoint's random state comes from "
                 "another kind of device than %s and cannot be restored; "
                 "generators are seeded from --seed and the step, so random "
                 "numbers differ from those of an uninterrupted run\n",
                 worker.device.str().c_str());
  }
  const uint64_t of_step =
      MixIn(seed, static_cast<uint64_t>(reader.saved().step));
  generator.set_current_seed(MixIn(of_step, rank));
  return absl::OkStatus();
}

// Seconds are wall-clock time: those of ranks that no longer exist are not
// added, and a new rank continues with the first rank's.
absl::Status RestoreSums(CheckpointReader& reader, const Worker& worker,
                         Progress& progress) {
  ASSIGN_OR_RETURN(const auto sums, ReadShares(reader, kSums));
  const auto ranks = static_cast<size_t>(worker.dp_size());
  const auto rank = static_cast<size_t>(worker.dp_rank());
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].numel() < 3) {
      return absl::DataLossError(
          absl::StrCat("--resume: the checkpoint lacks sums of data-parallel "
                       "rank ",
                       i));
    }
    const double* values = sums[i].const_data_ptr<double>();
    if (i == 0 || i == rank) progress.epoch_seconds = values[kSeconds];
    if (i == 0 && sums[i].numel() > kUnixSeconds &&
        values[kUnixSeconds] > kEarliestUnixSeconds) {
      progress.saved_unix_seconds = values[kUnixSeconds];
    }
    if (i != rank && (rank > 0 || i < ranks)) continue;
    progress.epoch_loss += values[kLoss];
    progress.epoch_examples += static_cast<int64_t>(values[kExamples]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddProgress(const Progress& progress, const Worker& worker,
                         Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const auto generators,
                   GatherShares(worker, GeneratorState(worker)));
  const torch::Tensor mine = at::tensor(
      {progress.epoch_loss, static_cast<double>(progress.epoch_examples),
       progress.epoch_seconds, UnixSeconds()},
      at::kDouble);
  ASSIGN_OR_RETURN(const auto sums, GatherShares(worker, mine));
  if (worker.is_first()) {
    AddShares(generators, kRng, checkpoint.tensors);
    AddShares(sums, kSums, checkpoint.tensors);
  }
  checkpoint.step = progress.step;
  checkpoint.epoch = progress.epoch;
  checkpoint.position = progress.position;
  checkpoint.metadata[kSaveKey] = SaveId(sums);
  return absl::OkStatus();
}

absl::StatusOr<Progress> RestoreProgress(CheckpointReader& reader,
                                         const Worker& worker, uint64_t seed) {
  RETURN_IF_ERROR(RestoreGenerator(reader, worker, seed));
  const Checkpoint& saved = reader.saved();
  Progress progress{
      .step = saved.step, .epoch = saved.epoch, .position = saved.position};
  RETURN_IF_ERROR(RestoreSums(reader, worker, progress));
  return progress;
}

}  // namespace rankwise
