#include "trainers/resume/shared_headers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "nlohmann/json.hpp"
#include "parallel/comm/communicator.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Json = nlohmann::json;

// Bytes in a device's memory at a time.
constexpr int64_t kPieceBytes = 1 << 26;

// CBOR, because texts of damaged files need not be UTF-8.
std::vector<uint8_t> Encode(const CheckpointHeaders& headers) {
  Json json = Json::object();
  for (const auto& [name, header] : headers)
    json[name] = {header.json, header.data_bytes};
  return Json::to_cbor(json);
}

CheckpointHeaders Decode(const std::vector<uint8_t>& bytes) {
  const Json json = Json::from_cbor(bytes);
  CheckpointHeaders headers;
  for (const auto& [name, header] : json.items())
    headers[name] = {header[0], header[1]};
  return headers;
}

// Overwrites `values`, which are on the CPU, with the first rank's.
absl::Status BroadcastFirst(at::Tensor values, const Worker& worker) {
  at::Tensor shared = values.to(worker.device);
  RETURN_IF_ERROR(worker.comm->Broadcast(shared, /*root=*/0));
  values.copy_(shared);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckpointHeaders> ShareHeaders(const CheckpointHeaders& headers,
                                               const Worker& worker) {
  if (worker.comm == nullptr || worker.comm->world_size() == 1) return headers;
  std::vector<uint8_t> bytes = Encode(headers);
  const at::Tensor size =
      at::tensor({static_cast<int64_t>(bytes.size())}, at::kLong);
  RETURN_IF_ERROR(BroadcastFirst(size, worker));
  bytes.resize(static_cast<size_t>(size.item<int64_t>()));
  const at::Tensor all =
      at::from_blob(bytes.data(), {size.item<int64_t>()}, at::kByte);
  for (int64_t begin = 0; begin < all.size(0); begin += kPieceBytes) {
    const int64_t piece = std::min(kPieceBytes, all.size(0) - begin);
    RETURN_IF_ERROR(BroadcastFirst(all.narrow(0, begin, piece), worker));
  }
  return Decode(bytes);
}

}  // namespace rankwise
