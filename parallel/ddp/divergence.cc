#include "parallel/ddp/divergence.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/fingerprint.h"
#include "parallel/ddp/model_state.h"
#include "torch/types.h"

namespace rankwise {
namespace {

// The ranks whose value is not the most frequent one. Rank 0's value wins a
// tie.
std::vector<int> Outliers(const std::vector<int64_t>& values) {
  std::map<int64_t, int> counts;
  for (int64_t value : values) ++counts[value];
  int64_t usual = values[0];
  for (const auto& [value, count] : counts) {
    if (count > counts[usual]) usual = value;
  }
  std::vector<int> outliers;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != usual) outliers.push_back(static_cast<int>(rank));
  }
  return outliers;
}

absl::Status Diverged(const std::string& name, const std::vector<int>& outliers,
                      int world_size) {
  return absl::DataLossError(absl::StrCat(
      "parameters have diverged: '", name, "' differs on rank ",
      absl::StrJoin(outliers, ", "), " from the other ",
      world_size - static_cast<int>(outliers.size()), " of ", world_size,
      " ranks; restart from the last checkpoint, and look for an update that "
      "is not the same on every rank"));
}

}  // namespace

absl::Status CheckDivergence(const torch::nn::Module& module,
                             Communicator& communicator) {
  const std::vector<NamedTensor> parameters = ModelParameters(module);
  std::vector<int64_t> hashes;
  for (const NamedTensor& item : parameters) {
    hashes.push_back(static_cast<int64_t>(FingerprintTensor(item.tensor)));
  }
  absl::StatusOr<std::vector<at::Tensor>> all = communicator.AllGather(
      torch::tensor(hashes, torch::kLong).to(communicator.device()));
  if (!all.ok()) return all.status();
  for (at::Tensor& row : *all) row = row.cpu();
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<int64_t> values;
    for (const at::Tensor& row : *all) {
      values.push_back(row.const_data_ptr<int64_t>()[i]);
    }
    const std::vector<int> outliers = Outliers(values);
    if (!outliers.empty()) {
      return Diverged(parameters[i].name, outliers, communicator.world_size());
    }
  }
  return absl::OkStatus();
}

}  // namespace rankwise
