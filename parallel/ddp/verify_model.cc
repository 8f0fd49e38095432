#include "parallel/ddp/verify_model.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/fingerprint.h"
#include "parallel/ddp/model_state.h"
#include "torch/types.h"

namespace rankwise {
namespace {

// One parameter or buffer, as the ranks tell each other: "kind\tname\tform\n".
struct Entry {
  std::string kind, name, form;

  bool operator==(const Entry& other) const {
    return kind == other.kind && name == other.name && form == other.form;
  }
};

std::string Form(const torch::Tensor& tensor) {
  std::string form = absl::StrCat(c10::toString(tensor.scalar_type()), " [",
                                  absl::StrJoin(tensor.sizes(), ", "), "]");
  if (!tensor.is_contiguous()) {
    absl::StrAppend(&form, " with strides [",
                    absl::StrJoin(tensor.strides(), ", "), "]");
  }
  return form;
}

std::string Describe(const torch::nn::Module& module) {
  std::string text;
  for (const NamedTensor& item : ModelParameters(module)) {
    const bool trained = item.tensor.requires_grad();
    absl::StrAppend(&text, "parameter\t", item.name, "\t", Form(item.tensor),
                    trained ? "" : " without gradient", "\n");
  }
  for (const NamedTensor& item : ModelBuffers(module)) {
    absl::StrAppend(&text, "buffer\t", item.name, "\t", Form(item.tensor),
                    "\n");
  }
  return text;
}

std::vector<Entry> Parse(const std::string& text) {
  std::vector<Entry> entries;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::vector<std::string> parts = absl::StrSplit(line, '\t');
    entries.push_back({parts[0], parts[1], parts[2]});
  }
  return entries;
}

// Every rank's description; empty when all are equal.
absl::StatusOr<std::vector<std::string>> ExchangeIfDifferent(
    const std::string& own, Communicator& communicator) {
  const auto hash =
      static_cast<int64_t>(FingerprintBytes(own.data(), own.size()));
  const torch::Tensor summary =
      torch::tensor({static_cast<int64_t>(own.size()), hash}, torch::kLong)
          .to(communicator.device());
  absl::StatusOr<std::vector<at::Tensor>> summaries =
      communicator.AllGather(summary);
  if (!summaries.ok()) return summaries.status();
  std::vector<std::string> texts;
  std::vector<int64_t> sizes;
  bool equal = true;
  for (const at::Tensor& other : *summaries) {
    sizes.push_back(other[0].item<int64_t>());
    equal = equal && other.equal(summary);
  }
  if (equal) return texts;

  std::string padded = own;
  padded.resize(*std::max_element(sizes.begin(), sizes.end()));
  const at::Tensor bytes =
      at::from_blob(padded.data(), {static_cast<int64_t>(padded.size())},
                    torch::kByte)
          .to(communicator.device());
  absl::StatusOr<std::vector<at::Tensor>> all = communicator.AllGather(bytes);
  if (!all.ok()) return all.status();
  for (size_t rank = 0; rank < all->size(); ++rank) {
    const at::Tensor host = (*all)[rank].cpu();
    texts.emplace_back(static_cast<const char*>(host.const_data_ptr()),
                       sizes[rank]);
  }
  return texts;
}

// What is at `index` of a rank's list, in words.
std::string Present(const std::vector<Entry>& entries, size_t index) {
  if (index >= entries.size()) return "missing";
  return absl::StrCat(entries[index].kind, " '", entries[index].name, "', ",
                      entries[index].form);
}

std::string Difference(const std::vector<Entry>& zero,
                       const std::vector<Entry>& other, size_t index,
                       size_t rank) {
  const bool both = index < zero.size() && index < other.size();
  if (both && zero[index].kind == other[index].kind &&
      zero[index].name == other[index].name) {
    return absl::StrCat(zero[index].kind, " '", zero[index].name, "' is ",
                        zero[index].form, " on rank 0 and ", other[index].form,
                        " on rank ", rank);
  }
  return absl::StrCat("tensor ", index + 1, " is ", Present(zero, index),
                      " on rank 0 (of ", zero.size(), ") and ",
                      Present(other, index), " on rank ", rank, " (of ",
                      other.size(), ")");
}

absl::Status FirstDifference(const std::vector<std::string>& texts) {
  const std::vector<Entry> zero = Parse(texts[0]);
  size_t first_index = SIZE_MAX;
  std::string difference;
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const std::vector<Entry> other = Parse(texts[rank]);
    size_t index = 0;
    while (index < zero.size() && index < other.size() &&
           zero[index] == other[index]) {
      ++index;
    }
    if (index >= first_index) continue;
    first_index = index;
    difference = Difference(zero, other, index, rank);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the ranks built different models: ", difference,
                   "; build the same model on every rank"));
}

}  // namespace

absl::Status VerifyModel(const torch::nn::Module& module,
                         Communicator& communicator) {
  absl::StatusOr<std::vector<std::string>> texts =
      ExchangeIfDifferent(Describe(module), communicator);
  if (!texts.ok()) return texts.status();
  return texts->empty() ? absl::OkStatus() : FirstDifference(*texts);
}

}  // namespace rankwise
