#include "parallel/comm/control.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/core/Tensor.h"
#include "parallel/comm/communicator.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

// The largest tags that MPI guarantees; engines number theirs from 0.
constexpr int kTag = 32766;
constexpr int kTextTag = 32767;

at::Tensor ByteTensor(int64_t size) { return at::empty({size}, at::kByte); }
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

  std::vector<double> Max(absl::Span<const double> values) override {
    return Reduce(values, c10d::ReduceOp::MAX);
  }
  std::vector<double> Sum(absl::Span<const double> values) override {
    return Reduce(values, c10d::ReduceOp::SUM);
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
  std::vector<double> Reduce(absl::Span<const double> values,
                             c10d::ReduceOp::RedOpType op) {
    if (world_size() == 1 || values.empty()) {
      return {values.begin(), values.end()};
    }
    std::vector<at::Tensor> reduced{Doubles(values.size())};
    double* const data = reduced[0].data_ptr<double>();
    std::copy(values.begin(), values.end(), data);
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    backend_->allreduce(reduced, options)->wait();
    return {data, data + values.size()};
  }

  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace

std::unique_ptr<Control> MakeGroupControl(
    c10::intrusive_ptr<c10d::ProcessGroup> group) {
  return std::make_unique<GroupControl>(std::move(group));
}

std::vector<std::string> GatherText(Communicator* comm,
                                    const std::string& text) {
  if (comm == nullptr || !comm->has_peers()) return {text};
  const auto backend = comm->process_group()->getBackend(c10::kCPU);
  const double size = static_cast<double>(text.size());
  const auto sizes =
      MakeGroupControl(comm->process_group())->Gather({&size, 1});
  if (comm->rank() != 0) {
    if (text.empty()) return {};
    std::vector<at::Tensor> message = {
        ByteTensor(static_cast<int64_t>(text.size()))};
    std::memcpy(message[0].data_ptr(), text.data(), text.size());
    backend->send(message, 0, kTextTag)->wait();
    return {};
  }
  std::vector<std::string> texts = {text};
  for (size_t rank = 1; rank < sizes.size(); ++rank) {
    const auto bytes = static_cast<int64_t>(sizes[rank][0]);
    std::vector<at::Tensor> message = {ByteTensor(bytes)};
    if (bytes > 0)
      backend->recv(message, static_cast<int>(rank), kTextTag)->wait();
    texts.emplace_back(static_cast<const char*>(message[0].const_data_ptr()),
                       static_cast<size_t>(bytes));
  }
  return texts;
}

}  // namespace rankwise
