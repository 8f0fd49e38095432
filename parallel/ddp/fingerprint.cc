#include "parallel/ddp/fingerprint.h"

#include <bit>
#include <cstring>

namespace rankwise {
namespace {

// An odd 64-bit constant with well-spread bits: 2^64 / golden ratio.
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;

uint64_t Mix(uint64_t hash, uint64_t word) {
  return std::rotl(hash ^ word * kMultiplier, 29) * kMultiplier;
}

}  // namespace

uint64_t FingerprintBytes(const void* data, size_t size) {
  // Four independent lanes keep the multiplier busy; they meet at the end.
  uint64_t lanes[4] = {size, 1, 2, 3};
  const auto* bytes = static_cast<const unsigned char*>(data);
  size_t done = 0;
  for (; done + sizeof(lanes) <= size; done += sizeof(lanes)) {
    uint64_t words[4];
    std::memcpy(words, bytes + done, sizeof(words));
    for (int i = 0; i < 4; ++i) lanes[i] = Mix(lanes[i], words[i]);
  }
  uint64_t rest[4] = {};
  if (done < size) std::memcpy(rest, bytes + done, size - done);
  uint64_t hash = kMultiplier;
  for (int i = 0; i < 4; ++i) hash = Mix(hash, Mix(lanes[i], rest[i]));
  return hash ^ hash >> 32;
}

uint64_t FingerprintTensor(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.detach().cpu().contiguous();
  return FingerprintBytes(flat.const_data_ptr(), flat.nbytes());
}

}  // namespace rankwise
