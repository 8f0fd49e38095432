#include "trainers/huggingface/weights_reader.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "third_party/absl/status_macros.h"
#include "trainers/huggingface/json_file.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kTypes[] = "F32, F16 or BF16";

template <typename... Parts>
absl::Status Refused(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

std::string ShapeText(at::IntArrayRef shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

bool IsRead(c10::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

// Tensors that transformers ignores: it computes the frequencies, and a tied
// head is the embedding.
bool IsIgnored(const std::string& name, const HuggingFaceConfig& config) {
  return absl::EndsWith(name, "rotary_emb.inv_freq") ||
         (config.tie_word_embeddings && name == "lm_head.weight");
}

// Returns the file of each tensor.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(
    const std::string& path) {
  ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  try {
    return json.at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const Json::exception&) {
    return Refused(path,
                   ": is not a JSON object whose weight_map has the file of "
                   "each tensor");
  }
}

}  // namespace

absl::StatusOr<HuggingFaceWeights> HuggingFaceWeights::Open(
    const std::string& dir, const HuggingFaceConfig& config) {
  HuggingFaceWeights weights;
  weights.parameters_ = HuggingFaceParameters(config);
  RETURN_IF_ERROR(weights.OpenFiles(dir));
  RETURN_IF_ERROR(weights.CheckTensors(dir, config));
  return weights;
}

absl::Status HuggingFaceWeights::OpenFiles(const std::string& dir) {
  const fs::path folder(dir);
  std::error_code error;
  if (fs::exists(folder / kWeights, error)) return AddFile(folder / kWeights);
  if (fs::exists(folder / kIndex, error)) return OpenShards(folder / kIndex);
  return absl::NotFoundError(absl::StrCat(
      dir, ": has neither ", kWeights, " nor ", kIndex,
      "; other formats are not read: save the model with save_pretrained()"));
}

absl::Status HuggingFaceWeights::OpenShards(const std::string& index_path) {
  ASSIGN_OR_RETURN(const auto file_of, ReadIndex(index_path));
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  for (const std::string& name : names) {
    const absl::Status added =
        AddFile(fs::path(index_path).parent_path() / name);
    if (added.ok()) continue;
    return absl::Status(added.code(), absl::StrCat(added.message(), "; ",
                                                   index_path, " lists it"));
  }
  for (const auto& [tensor, file] : file_of) {
    const auto found = tensors_.find(tensor);
    if (found != tensors_.end() &&
        fs::path(files_[found->second.file].path).filename() == file) {
      continue;
    }
    return Refused(index_path, ": says that the tensor ", tensor, " is in ",
                   file, ", which does not have it");
  }
  return absl::OkStatus();
}

absl::Status HuggingFaceWeights::AddFile(const std::string& path) {
  ASSIGN_OR_RETURN(SafetensorsHeader header, LoadSafetensorsHeader(path));
  for (size_t i = 0; i < header.entries.size(); ++i) {
    const std::string& name = header.entries[i].name;
    const auto [known, is_new] = tensors_.try_emplace(name, files_.size(), i);
    if (!is_new) {
      return Refused(path, ": has the tensor ", name, ", as has ",
                     files_[known->second.file].path);
    }
  }
  files_.push_back({path, std::move(header)});
  return absl::OkStatus();
}

absl::Status HuggingFaceWeights::CheckTensors(
    const std::string& dir, const HuggingFaceConfig& config) const {
  std::set<std::string> expected;
  for (const auto& [name, parameter] : parameters_) {
    for (const HuggingFaceTensor& tensor : parameter.tensors) {
      RETURN_IF_ERROR(CheckTensor(dir, tensor));
      expected.insert(tensor.name);
    }
  }
  for (const auto& [name, place] : tensors_) {
    if (expected.count(name) == 0 && !IsIgnored(name, config)) {
      return Refused(files_[place.file].path, ": has the tensor ", name,
                     ", which a model of its configuration lacks");
    }
  }
  return absl::OkStatus();
}

absl::Status HuggingFaceWeights::CheckTensor(
    const std::string& dir, const HuggingFaceTensor& expected) const {
  const auto found = tensors_.find(expected.name);
  if (found == tensors_.end()) {
    return Refused(dir, ": lacks the tensor ", expected.name, " of shape ",
                   ShapeText(expected.shape));
  }
  const TensorEntry& entry = EntryAt(found->second);
  const std::string& path = files_[found->second.file].path;
  if (entry.shape != expected.shape) {
    return Refused(path, ": the tensor ", entry.name, " is of shape ",
                   ShapeText(entry.shape), ", not ", ShapeText(expected.shape),
                   " as the configuration says");
  }
  if (IsRead(entry.dtype)) return absl::OkStatus();
  return Refused(path, ": the tensor ", entry.name, " is of type ",
                 c10::toString(entry.dtype), ", not ", kTypes);
}

absl::Status HuggingFaceWeights::Read(const TensorBlock& block) const {
  const bool is_whole = block.offsets.empty();
  const at::IntArrayRef shape =
      is_whole ? block.values.sizes() : at::IntArrayRef(block.whole_shape);
  const auto found = parameters_.find(block.name);
  if (found == parameters_.end() || shape != found->second.shape) {
    return Refused("the parameter ", block.name, " of shape ", ShapeText(shape),
                   " is not one of the folder's");
  }
  const int64_t first = is_whole ? 0 : block.offsets[0];
  const int64_t column = is_whole || shape.size() < 2 ? 0 : block.offsets[1];
  for (const HuggingFaceTensor& tensor : found->second.tensors) {
    const int64_t begin = std::max(first, tensor.first_row);
    const int64_t end = std::min(first + block.values.size(0),
                                 tensor.first_row + tensor.shape[0]);
    if (begin >= end) continue;
    RETURN_IF_ERROR(
        ReadRows(tensors_.at(tensor.name), begin - tensor.first_row, column,
                 block.values.narrow(0, begin - first, end - begin)));
  }
  return absl::OkStatus();
}

// Fills `to` with the tensor's values from row `begin` and column
// `first_column` on.
absl::Status HuggingFaceWeights::ReadRows(const Place& place, int64_t begin,
                                          int64_t first_column,
                                          const torch::Tensor& to) const {
  constexpr int64_t kMostBytes = 64 << 20;  // in memory at a time
  const at::NoGradGuard no_grad;
  const File& file = files_[place.file];
  const TensorEntry& entry = EntryAt(place);
  const int64_t row_bytes = (entry.end - entry.begin) / entry.shape[0];
  const int64_t most = std::max<int64_t>(kMostBytes / row_bytes, 1);
  for (int64_t done = 0; done < to.size(0); done += most) {
    const int64_t rows = std::min(most, to.size(0) - done);
    const int64_t start = entry.begin + (begin + done) * row_bytes;
    ASSIGN_OR_RETURN(const torch::Tensor bytes,
                     LoadSafetensorsBytes(file.path, file.header, start,
                                          start + rows * row_bytes));
    torch::Tensor values = bytes.view(entry.dtype);
    if (to.dim() == 2) {
      values = values.view({rows, -1}).narrow(1, first_column, to.size(1));
    }
    to.narrow(0, done, rows).copy_(values);
  }
  return absl::OkStatus();
}

}  // namespace rankwise
