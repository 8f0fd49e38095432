// Loads a checkpoint with all of its tensors, for tests.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_LOAD_ALL_FOR_TEST_H_
#define RANKWISE_TRAINERS_CHECKPOINT_LOAD_ALL_FOR_TEST_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint.h"

namespace rankwise {

inline absl::StatusOr<std::optional<Checkpoint>> LoadAll(
    CheckpointStore& store, std::vector<std::string>* warnings,
    int64_t last_step = std::numeric_limits<int64_t>::max()) {
  Checkpoint all;
  const LoadFunction load = [&](CheckpointReader& reader) -> absl::Status {
    all = reader.saved();
    for (const std::string& name : reader.Names()) {
      ASSIGN_OR_RETURN(torch::Tensor tensor, reader.Read(name));
      all.tensors.push_back({name, tensor});
    }
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const auto step,
                   store.LoadLatest(warnings, load, last_step));
  if (!step.has_value()) return std::nullopt;
  return all;
}

// Returns the tensors by name.
inline std::map<std::string, torch::Tensor> TensorsOf(
    const Checkpoint& checkpoint) {
  std::map<std::string, torch::Tensor> tensors;
  for (const TensorBlock& block : checkpoint.tensors)
    tensors.emplace(block.name, block.values);
  return tensors;
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_LOAD_ALL_FOR_TEST_H_
