#include "trainers/resume/agreement.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/gather.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr size_t kMessageBytes = 1000;

absl::Status FailureOf(absl::string_view attempted, size_t rank,
                       const absl::Status& theirs) {
  return absl::Status(theirs.code(),
                      absl::StrCat(attempted, " failed on rank ", rank, ": ",
                                   theirs.message()));
}

// Returns a status's message in a tensor of fixed size, padded with zeros.
at::Tensor Encode(const absl::Status& status) {
  at::Tensor bytes =
      at::zeros({static_cast<int64_t>(kMessageBytes)}, at::kByte);
  status.message().copy(static_cast<char*>(bytes.mutable_data_ptr()),
                        kMessageBytes);
  return bytes;
}

std::string Decode(const at::Tensor& bytes) {
  const char* const text = static_cast<const char*>(bytes.const_data_ptr());
  return std::string(text, strnlen(text, kMessageBytes));
}

}  // namespace

absl::Status AgreeOnSuccess(absl::string_view attempted,
                            const absl::Status& mine, const Worker& worker) {
  if (worker.comm == nullptr || worker.comm->world_size() == 1) return mine;
  ASSIGN_OR_RETURN(
      const std::vector<at::Tensor> codes,
      GatherToHost(at::tensor({mine.raw_code()}, at::kLong), worker.comm));
  const auto failed = std::find_if(
      codes.begin(), codes.end(),
      [](const at::Tensor& each) { return each.item<int64_t>() != 0; });
  if (failed == codes.end()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<at::Tensor> messages,
                   GatherToHost(Encode(mine), worker.comm));
  const auto rank = static_cast<size_t>(failed - codes.begin());
  return FailureOf(
      attempted, rank,
      absl::Status(static_cast<absl::StatusCode>(failed->item<int64_t>()),
                   Decode(messages[rank])));
}

}  // namespace rankwise
