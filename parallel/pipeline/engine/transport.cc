#include "parallel/pipeline/engine/transport.h"

#include <algorithm>
#include <limits>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "c10/core/MemoryFormat.h"
#include "c10/core/StreamGuard.h"
#include "c10/util/Exception.h"
#include "c10/util/accumulate.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/control.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

// Returns values that differ, since normalisation would map equal ones to zero,
// and that are not denormal, which would slow computation down.
at::Tensor SmallNumbers(const std::vector<int64_t>& shape,
                        const at::TensorOptions& options) {
  constexpr double kLargest = 1e-3;
  return at::arange(c10::multiply_integers(shape), options.dtype(at::kFloat))
      .sin_()
      .mul_(kLargest)
      .view(shape)
      .to(options);
}

}  // namespace

at::Tensor ToWire(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach();
  if (plain.dim() != 4) return plain.contiguous();
  return plain.contiguous(at::MemoryFormat::ChannelsLast).permute({0, 2, 3, 1});
}

at::Tensor FromWire(const at::Tensor& wire) {
  return wire.dim() == 4 ? wire.permute({0, 3, 1, 2}) : wire;
}

std::vector<int64_t> WireShape(std::vector<int64_t> shape) {
  if (shape.size() != 4) return shape;
  return {shape[0], shape[2], shape[3], shape[1]};
}

at::Tensor WireBuffers::Take(const std::vector<int64_t>& wire_shape,
                             at::ScalarType type) {
  const auto options = at::TensorOptions(type).device(device_);
  if (!device_.is_cpu() && !filled_) return at::empty(wire_shape, options);
  for (const at::Tensor& buffer : buffers_) {
    // The pool holds one reference to the tensor, which holds one to the
    // storage. Views and saved tensors add to one or the other.
    const bool is_free =
        buffer.use_count() == 1 && buffer.storage().use_count() == 1;
    if (is_free && buffer.scalar_type() == type && buffer.sizes() == wire_shape)
      return buffer;
  }
  buffers_.push_back(filled_ ? SmallNumbers(wire_shape, options)
                             : at::empty(wire_shape, options));
  return buffers_.back();
}

void Transport::Wait(P2POp& op) {
  DeviceEvent start(device_);
  Complete(op);
  waits_.push_back({static_cast<int64_t>(op.tensor.nbytes()),
                    PendingDuration(std::move(start), DeviceEvent(device_))});
}

GroupTransport::GroupTransport(const Group& pipeline, c10::Device device)
    : Transport(pipeline.place(), device), group_(pipeline) {
  TORCH_CHECK(group_.process_group() != nullptr || num_ranks() == 1,
              "a pipeline of ", num_ranks(), " ranks needs a process group");
}

void GroupTransport::Start(P2POp& op) {
  std::vector<at::Tensor> tensors = {op.tensor};
  const auto& group = group_.process_group();
  op.work = op.is_send ? group->send(tensors, op.peer, op.tag)
                       : group->recv(tensors, op.peer, op.tag);
}

void GroupTransport::Complete(P2POp& op) {
  op.work->wait();
  op.work.reset();
}

at::Tensor GroupTransport::Exchange(int peer, const at::Tensor& mine, int tag) {
  P2POp send{true, peer, tag, mine};
  P2POp receive{false, peer, tag, at::empty_like(mine)};
  // NCCL runs the two in issue order, which must be opposite on the two sides:
  // the lower rank sends first.
  P2POp* order[] = {&send, &receive};
  if (peer < rank()) std::swap(order[0], order[1]);
  for (P2POp* op : order) Start(*op);
  for (P2POp* op : order) Wait(*op);
  return receive.tensor;
}

void GroupTransport::Broadcast(const at::Tensor& tensor, int root) {
  std::vector<P2POp> ops;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (peer != rank() && (rank() == root || peer == root))
      ops.push_back({rank() == root, peer, /*tag=*/0, tensor});
  }
  for (P2POp& op : ops) Start(op);
  for (P2POp& op : ops) Wait(op);
}

void GroupTransport::Connect(const Schedule& schedule) {
  if (device().is_cpu()) return;
  std::set<int> peers;
  for (size_t stage = 0; stage + 1 < schedule.rank_of_stage.size(); ++stage) {
    const int from = schedule.rank_of_stage[stage];
    const int to = schedule.rank_of_stage[stage + 1];
    if (from == to) continue;
    if (from == rank()) peers.insert(to);
    if (to == rank()) peers.insert(from);
  }
  // Ascending on every rank: the lexicographically first unconnected pair can
  // always connect.
  for (int peer : peers) {
    if (!connected_.insert(peer).second) continue;
    Exchange(peer,
             at::zeros({1}, at::TensorOptions(at::kFloat).device(device())));
  }
}

class LocalTransports::OfRank : public Transport {
 public:
  OfRank(LocalTransports& all, int rank, c10::Device device)
      : Transport(rank, device), all_(all) {}

  void Start(P2POp& op) override {
    const Address address = AddressOf(op);
    Copy& copy = all_.copies_[address];
    at::Tensor& mine = op.is_send ? copy.from : copy.to;
    TORCH_CHECK(!mine.defined(), "rank ", rank(), " started the message ",
                op.tag, " twice");
    mine = op.tensor;
    if (op.is_send) copy.sent.emplace(device());
    if (copy.from.defined() && copy.to.defined()) all_.Run(address, copy);
  }

 private:
  void Complete(P2POp& op) override {
    const auto found = all_.copies_.find(AddressOf(op));
    TORCH_CHECK(
        found != all_.copies_.end() && found->second.arrived.has_value(),
        "rank ", rank(), " waits for the message ", op.tag, " with rank ",
        op.peer,
        ", which that rank has not started; one thread cannot wait for "
        "itself");
    found->second.arrived->Block(CurrentStream(device()));
    if (++found->second.waits == 2) all_.copies_.erase(found);
  }

  Address AddressOf(const P2POp& op) const {
    return op.is_send ? Address(rank(), op.peer, op.tag)
                      : Address(op.peer, rank(), op.tag);
  }

  LocalTransports& all_;
};

LocalTransports::LocalTransports(std::vector<c10::Device> devices,
                                 StageStreams& streams)
    : streams_(streams) {
  for (const c10::Device& device : devices) {
    const int rank = static_cast<int>(transports_.size());
    transports_.push_back(std::make_unique<OfRank>(*this, rank, device));
    departures_.emplace_back();
    if (!device.is_cpu()) departures_.back().push_back(streams_.Add(device));
  }
}

LocalTransports::~LocalTransports() = default;

std::vector<Transport*> LocalTransports::All() const {
  std::vector<Transport*> all;
  for (const auto& transport : transports_) all.push_back(transport.get());
  return all;
}

void LocalTransports::Run(const Address& address, Copy& copy) {
  const auto [from, to, tag] = address;
  const c10::Device source = transports_[static_cast<size_t>(from)]->device();
  const c10::Device target = transports_[static_cast<size_t>(to)]->device();
  // ATen copies on the current stream of the source's device and synchronises
  // it with the current stream of the target's device before and after
  // (aten/src/ATen/native/cuda/Copy.cu). On one device a single stream does
  // both.
  std::vector<c10::Stream> streams = streams_.Arrivals(target);
  if (source != target) {
    const auto& departure = departures_[static_cast<size_t>(from)];
    streams.insert(streams.end(), departure.begin(), departure.end());
  }
  if (!streams.empty()) copy.sent->Block(streams.back());
  const c10::MultiStreamGuard guard(streams);
  copy.to.copy_(copy.from, /*non_blocking=*/true);
  if (streams.size() > 1) DeviceEvent(streams.back()).Block(streams.front());
  copy.arrived.emplace(target);
}

void SumSharedGradient(const Group& pipeline, int peer, int tag,
                       const at::Tensor& weight) {
  at::NoGradGuard no_grad;
  at::Tensor& gradient = weight.mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(weight);
  GroupTransport transport(pipeline, weight.device());
  gradient.add_(transport.Exchange(peer, gradient.contiguous(), tag));
}

double Median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

namespace {

at::Tensor Message(int64_t bytes, c10::Device device) {
  return at::zeros({bytes}, at::TensorOptions(at::kByte).device(device));
}

template <typename Measure>
double MedianSeconds(int count, Measure measure) {
  constexpr int kWarmup = 2;
  for (int i = 0; i < kWarmup; ++i) measure();
  std::vector<double> seconds(static_cast<size_t>(count));
  std::generate(seconds.begin(), seconds.end(), measure);
  return Median(std::move(seconds));
}

// Returns the seconds of half a round trip with `peer`, which must call it too.
double HalfTripSeconds(GroupTransport& transport, int peer,
                       const at::Tensor& tensor) {
  const bool starts = transport.rank() < peer;
  const double start = SteadySeconds();
  for (const bool is_send : {starts, !starts}) {
    P2POp op{is_send, peer, /*tag=*/0, tensor};
    transport.Start(op);
    transport.Wait(op);
    DeviceEvent(transport.device()).Wait();  // on a GPU, Wait only enqueues
  }
  return (SteadySeconds() - start) / 2;
}

// Returns the seconds of a copy by the target's clock: ATen makes the target's
// stream wait for the copy.
double CopySeconds(const at::Tensor& from, at::Tensor to) {
  DeviceEvent(from.device()).Wait();
  const DeviceEvent start(to.device());
  to.copy_(from, /*non_blocking=*/true);
  return WaitForSecondsBetween(start, DeviceEvent(to.device()));
}

// `median_seconds(bytes, count)`: the median time of `count` messages of that
// size.
template <typename MedianOf>
LinkCosts CostsBy(int64_t message_bytes, MedianOf median_seconds) {
  constexpr int64_t kSmallBytes = 4, kMaxLargeBytes = int64_t{4} << 20;
  constexpr int kSmallCount = 20, kLargeCount = 7;
  const int64_t large = std::clamp(message_bytes, kSmallBytes, kMaxLargeBytes);
  const double small_seconds = median_seconds(kSmallBytes, kSmallCount);
  return FitLink(kSmallBytes, small_seconds, large,
                 median_seconds(large, kLargeCount));
}

}  // namespace

LinkCosts FitLink(int64_t small_bytes, double small_seconds,
                  int64_t large_bytes, double large_seconds) {
  LinkCosts link;
  if (large_bytes > small_bytes) {
    link.beta_seconds_per_byte =
        std::max(0.0, (large_seconds - small_seconds) /
                          static_cast<double>(large_bytes - small_bytes));
  }
  link.alpha_seconds =
      std::max(0.0, small_seconds - static_cast<double>(small_bytes) *
                                        link.beta_seconds_per_byte);
  return link;
}

LinkCosts MeasureLink(const Group& pipeline, c10::Device device,
                      int64_t message_bytes) {
  LinkCosts mean;
  const int num_pairs = pipeline.size() - 1;
  if (num_pairs == 0) return mean;
  GroupTransport transport(pipeline, device);
  const int rank = transport.rank();
  LinkCosts next;  // link to the next rank
  for (int parity : {0, 1}) {
    const int peer = rank % 2 == parity ? rank + 1 : rank - 1;
    if (peer < 0 || peer >= pipeline.size()) continue;
    const LinkCosts link =
        CostsBy(message_bytes, [&](int64_t bytes, int count) {
          const at::Tensor tensor = Message(bytes, device);
          return MedianSeconds(
              count, [&] { return HalfTripSeconds(transport, peer, tensor); });
        });
    if (peer > rank) next = link;
  }
  for (const std::vector<double>& costs :
       MakeGroupControl(pipeline.process_group())
           ->Gather({next.alpha_seconds, next.beta_seconds_per_byte})) {
    mean.alpha_seconds += costs[0] / num_pairs;
    mean.beta_seconds_per_byte += costs[1] / num_pairs;
  }
  return mean;
}

LinkCosts MeasureCopies(const std::vector<c10::Device>& devices,
                        int64_t message_bytes) {
  LinkCosts mean;
  const auto pairs = static_cast<double>(devices.size()) - 1;
  for (size_t i = 0; i + 1 < devices.size(); ++i) {
    const LinkCosts link =
        CostsBy(message_bytes, [&](int64_t bytes, int count) {
          const at::Tensor from = Message(bytes, devices[i]);
          const at::Tensor to = Message(bytes, devices[i + 1]);
          return MedianSeconds(count, [&] { return CopySeconds(from, to); });
        });
    mean.alpha_seconds += link.alpha_seconds / pairs;
    mean.beta_seconds_per_byte += link.beta_seconds_per_byte / pairs;
  }
  return mean;
}

}  // namespace rankwise
