#include "parallel/ddp/model_state.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "ATen/Functions.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "parallel/comm/gather.h"
#include "parallel/comm/group.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/comm.hpp"
#include "torch/nn/module.h"
#include "torch/nn/modules/embedding.h"

namespace rankwise {
namespace {

using torch::nn::Module;

// Size of the flat pieces in which parameters and buffers are broadcast; two
// are allocated at a time. (Python's 250 MiB would be a second copy of most
// models.)
constexpr size_t kBroadcastBytes = size_t{16} << 20;

// Returns each tensor once, under its first name.
std::vector<NamedTensor> Unique(
    const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<NamedTensor> unique;
  for (const auto& item : tensors) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second)
      unique.push_back({item.key(), item.value()});
  }
  return unique;
}

bool HasSparseGradient(const Module& module) {
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>())
    return embedding->options.sparse();
  const auto* bag = module.as<torch::nn::EmbeddingBagImpl>();
  return bag != nullptr && bag->options.sparse();
}

constexpr char kComparing[] = "comparing the ranks' models";

std::string Form(const torch::Tensor& tensor) {
  std::string form = absl::StrCat(c10::toString(tensor.scalar_type()), " [",
                                  absl::StrJoin(tensor.sizes(), ", "), "]");
  if (!tensor.is_contiguous()) {
    absl::StrAppend(&form, " with strides [",
                    absl::StrJoin(tensor.strides(), ", "), "]");
  }
  return form;
}

// Returns a line per tensor: "parameter 'fc.weight'\tFloat [2, 3]".
std::string Describe(const torch::nn::Module& module) {
  std::string text;
  for (const NamedTensor& item : ModelParameters(module)) {
    const bool trained = item.tensor.requires_grad();
    absl::StrAppend(&text, "parameter '", item.name, "'\t", Form(item.tensor),
                    trained ? "" : " without gradient", "\n");
  }
  for (const NamedTensor& item : ModelBuffers(module)) {
    absl::StrAppend(&text, "buffer '", item.name, "'\t", Form(item.tensor),
                    "\n");
  }
  return text;
}

// Returns every rank's description, by place, padded to the longest;
// returns an empty list if all are equal.
absl::StatusOr<std::vector<std::string>> ExchangeIfDifferent(
    const std::string& own, const Group& group) {
  const auto hash =
      static_cast<int64_t>(FingerprintBytes(own.data(), own.size()));
  const torch::Tensor summary =
      torch::tensor({static_cast<int64_t>(own.size()), hash}, torch::kLong);
  ASSIGN_OR_RETURN(std::vector<torch::Tensor> summaries,
                   GatherToHost(summary, group, kComparing));
  std::vector<std::string> texts;
  int64_t longest = 0;
  bool equal = true;
  for (const torch::Tensor& other : summaries) {
    longest = std::max(longest, other[0].item<int64_t>());
    equal = equal && other.equal(summary);
  }
  if (equal) return texts;

  std::string padded = own;  // with empty lines
  padded.resize(longest, '\n');
  ASSIGN_OR_RETURN(
      std::vector<torch::Tensor> all,
      GatherToHost(at::from_blob(padded.data(), {longest}, torch::kByte), group,
                   kComparing));
  for (const torch::Tensor& text : all)
    texts.emplace_back(static_cast<const char*>(text.const_data_ptr()),
                       longest);
  return texts;
}

using Lines = std::vector<std::string>;

// Returns how line `index` of two descriptions differs; `ranks`: theirs in the
// job.
std::string Difference(const Lines& first, const Lines& other, size_t index,
                       std::pair<int, int> ranks) {
  // Returns a tensor's name and form.
  const auto entry =
      [&](const Lines& lines) -> std::pair<std::string, std::string> {
    if (index >= lines.size()) return {"missing", ""};
    return absl::StrSplit(lines[index], absl::MaxSplits('\t', 1));
  };
  const auto [name, form] = entry(first);
  const auto [other_name, other_form] = entry(other);
  if (name == other_name) {
    return absl::StrCat(name, " is ", form, " on rank ", ranks.first, " and ",
                        other_form, " on rank ", ranks.second);
  }
  return absl::StrCat("tensor ", index + 1, " is ", name,
                      form.empty() ? "" : ", ", form, " on rank ", ranks.first,
                      " (of ", first.size(), ") and ", other_name,
                      other_form.empty() ? "" : ", ", other_form, " on rank ",
                      ranks.second, " (of ", other.size(), ")");
}

absl::Status FirstDifference(const std::vector<std::string>& texts,
                             const Group& group) {
  const auto lines_of = [](const std::string& text) -> Lines {
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  };
  const Lines first = lines_of(texts[0]);
  size_t first_index = SIZE_MAX;
  std::string difference;
  for (size_t place = 1; place < texts.size(); ++place) {
    if (texts[place] == texts[0]) continue;
    const Lines other = lines_of(texts[place]);
    const auto index = static_cast<size_t>(
        std::mismatch(first.begin(), first.end(), other.begin(), other.end())
            .first -
        first.begin());
    if (index >= first_index) continue;
    first_index = index;
    difference = Difference(first, other, index,
                            {group.ranks()[0], group.ranks()[place]});
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the ranks built different models: ", difference,
                   "; build the same model on every rank"));
}

// Returns the ranks, as numbered in the job, whose value is not the most
// frequent one. The first rank's value wins a tie.
std::vector<int> Outliers(const std::vector<int64_t>& values,
                          const Group& group) {
  std::map<int64_t, int> counts;
  for (int64_t value : values) ++counts[value];
  int64_t usual = values[0];
  for (const auto& [value, count] : counts) {
    if (count > counts[usual]) usual = value;
  }
  std::vector<int> outliers;
  for (size_t place = 0; place < values.size(); ++place) {
    if (values[place] != usual) outliers.push_back(group.ranks()[place]);
  }
  return outliers;
}

absl::Status Diverged(const std::string& name, const std::vector<int>& outliers,
                      int group_size) {
  return absl::DataLossError(absl::StrCat(
      "parameters have diverged: '", name, "' differs on rank ",
      absl::StrJoin(outliers, ", "), " from the other ",
      group_size - static_cast<int>(outliers.size()), " of ", group_size,
      " ranks; restart from the last checkpoint, and look for an update that "
      "is not the same on every rank"));
}

}  // namespace

std::vector<NamedTensor> ModelParameters(const Module& module) {
  std::vector<NamedTensor> parameters = Unique(module.named_parameters());
  std::unordered_set<const c10::TensorImpl*> sparse;
  module.apply([&](const Module& part) {
    if (!HasSparseGradient(part)) return;
    for (const torch::Tensor& weight : part.parameters(/*recurse=*/false))
      sparse.insert(weight.unsafeGetTensorImpl());
  });
  for (NamedTensor& parameter : parameters) {
    parameter.sparse_gradient =
        sparse.count(parameter.tensor.unsafeGetTensorImpl()) > 0;
  }
  return parameters;
}

std::vector<NamedTensor> ModelBuffers(const Module& module) {
  return Unique(module.named_buffers());
}

void BroadcastFromFirst(const std::vector<NamedTensor>& tensors,
                        const Group& group) {
  if (tensors.empty() || group.process_group() == nullptr) return;
  std::vector<torch::Tensor> detached;
  for (const NamedTensor& item : tensors)
    detached.push_back(item.tensor.detach());
  c10d::broadcast_coalesced(group.process_group(), detached, kBroadcastBytes,
                            /*rank=*/0);
}

PendingDuration BroadcastFromFirst(const std::vector<torch::Tensor>& tensors,
                                   const Group& group) {
  if (tensors.empty() || group.size() == 1) return 0;
  const c10::Device device = tensors.front().device();
  DeviceEvent start(device);
  c10d::broadcast_coalesced(group.process_group(), tensors, kBroadcastBytes,
                            /*rank=*/0);
  return PendingDuration(std::move(start), DeviceEvent(device));
}

absl::Status VerifyModel(const Module& module, const Group& group) {
  ASSIGN_OR_RETURN(std::vector<std::string> texts,
                   ExchangeIfDifferent(Describe(module), group));
  return texts.empty() ? absl::OkStatus() : FirstDifference(texts, group);
}

absl::Status CheckDivergence(const Module& module, const Group& group) {
  const std::vector<NamedTensor> parameters = ModelParameters(module);
  std::vector<int64_t> hashes;
  for (const NamedTensor& item : parameters)
    hashes.push_back(static_cast<int64_t>(FingerprintTensor(item.tensor)));
  ASSIGN_OR_RETURN(
      std::vector<torch::Tensor> all,
      GatherToHost(torch::tensor(hashes, torch::kLong), group, kComparing));
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<int64_t> values;
    for (const torch::Tensor& row : all)
      values.push_back(row.const_data_ptr<int64_t>()[i]);
    const std::vector<int> outliers = Outliers(values, group);
    if (!outliers.empty())
      return Diverged(parameters[i].name, outliers, group.size());
  }
  return absl::OkStatus();
}

uint64_t FingerprintBytes(const void* data, size_t size) {
  return std::hash<std::string_view>()({static_cast<const char*>(data), size});
}

uint64_t FingerprintTensor(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.detach().cpu().contiguous();
  return FingerprintBytes(flat.const_data_ptr(), flat.nbytes());
}

}  // namespace rankwise
