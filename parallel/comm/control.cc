#include "parallel/comm/control.h"

#include <algorithm>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/core/Tensor.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

constexpr int kTag = 0x636f6e74;  // no measured message has it

at::Tensor Doubles(int64_t size) { return at::empty({size}, at::kDouble); }

class GroupControl : public Control {
 public:
  explicit GroupControl(c10::intrusive_ptr<c10d::ProcessGroup> group)
      : group_(std::move(group)), backend_(group_->getBackend(c10::kCPU)) {}

  int rank() const override { return backend_->getRank(); }
  int world_size() const override { return backend_->getSize(); }

  std::vector<std::vector<double>> Gather(
      absl::Span<const double> values) override {
    if (world_size() == 1) return {{values.begin(), values.end()}};
    const auto size = static_cast<int64_t>(values.size());
    at::Tensor own = Doubles(size), all = Doubles(size * world_size());
    std::copy(values.begin(), values.end(), own.data_ptr<double>());
    backend_->_allgather_base(all, own)->wait();
    std::vector<std::vector<double>> gathered;
    const double* data = all.data_ptr<double>();
    for (int i = 0; i < world_size(); ++i) {
      gathered.emplace_back(data + i * size, data + (i + 1) * size);
    }
    return gathered;
  }

  void Barrier() override {
    if (world_size() > 1) backend_->barrier()->wait();
  }

  void Send(double value, int to) override {
    std::vector<at::Tensor> message{Doubles(1)};
    *message[0].data_ptr<double>() = value;
    backend_->send(message, to, kTag)->wait();
  }

  double Receive(int from) override {
    std::vector<at::Tensor> message{Doubles(1)};
    backend_->recv(message, from, kTag)->wait();
    return *message[0].data_ptr<double>();
  }

 private:
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace

std::unique_ptr<Control> MakeGroupControl(
    c10::intrusive_ptr<c10d::ProcessGroup> group) {
  return std::make_unique<GroupControl>(std::move(group));
}

}  // namespace rankwise
