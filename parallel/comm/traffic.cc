#include "parallel/comm/traffic.h"

#include <algorithm>
#include <utility>

#include "c10/core/ScalarType.h"

namespace rankwise {

std::string PythonDtypeName(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return "float32";
    case c10::ScalarType::Double:
      return "float64";
    case c10::ScalarType::Half:
      return "float16";
    case c10::ScalarType::BFloat16:
      return "bfloat16";
    case c10::ScalarType::Byte:
      return "uint8";
    case c10::ScalarType::Int:
      return "int32";
    case c10::ScalarType::Long:
      return "int64";
    default:
      return c10::toString(dtype);
  }
}

void TrafficRecorder::Start() {
  noted_.clear();
  noted_.reserve(kRoom);
  on_ = true;
}

void TrafficRecorder::Add(uint64_t ticket, const char* op,
                          at::ArrayRef<at::Tensor> tensors, int group, int peer,
                          int64_t start_ns) {
  if (!on_) return;
  Noted& noted = noted_.emplace_back();
  noted.ticket = ticket;
  noted.op = op;
  noted.group = group;
  noted.peer = peer;
  noted.start_ns = start_ns;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    noted.bytes += static_cast<int64_t>(tensor.nbytes());
    noted.count += tensor.numel();
    noted.dtype = tensor.scalar_type();
  }
}

TrafficRecorder::Noted* TrafficRecorder::Find(uint64_t ticket) {
  const auto after = std::upper_bound(noted_.begin(), noted_.end(), ticket,
                                      [](uint64_t wanted, const Noted& noted) {
                                        return wanted < noted.ticket;
                                      });
  if (after == noted_.begin() || (after - 1)->ticket != ticket) return nullptr;
  return &*(after - 1);
}

void TrafficRecorder::Waited(uint64_t ticket, int64_t now_ns) {
  Noted* const noted = Find(ticket);
  if (noted != nullptr && noted->wait_start_ns == 0) {
    noted->wait_start_ns = now_ns;
  }
}

void TrafficRecorder::Ended(uint64_t ticket, int64_t now_ns) {
  Noted* const noted = Find(ticket);
  if (noted != nullptr) noted->end_ns = now_ns;
}

void TrafficRecorder::SeenEnded(uint64_t ticket, int64_t now_ns) {
  Noted* const noted = Find(ticket);
  if (noted != nullptr) noted->ended_before_ns = now_ns;
}

std::vector<TrafficRecorder::Noted> TrafficRecorder::Take() {
  on_ = false;
  return std::exchange(noted_, {});
}

}  // namespace rankwise
