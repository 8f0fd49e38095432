#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/from_blob.h"
#include "ATen/record_function.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gloo/transport/unbound_buffer.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/backends/shared_memory.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/launch/network.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"

namespace rankwise {
namespace {

using Gloo = c10d::ProcessGroupGloo;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

std::shared_ptr<gloo::transport::Device> GlooDevice(const RankEnv& env) {
  if (!env.network_interface.empty()) {
    return Gloo::createDeviceForInterface(env.network_interface);
  }
  if (env.local_world_size == env.world_size) {
    return Gloo::createDeviceForHostname("127.0.0.1");
  }
  const absl::StatusOr<std::string> address =
      LocalAddressTowards(env.master_addr);
  // On rank 0's machine the name of the machine may lead to the loopback.
  if (address.ok() && !IsLoopbackAddress(*address)) {
    return Gloo::createDeviceForHostname(*address);
  }
  return Gloo::createDefaultDevice();
}

void Describe(const GroupPlace& place, c10d::Backend::Options& options) {
  if (place.name.empty()) return;
  options.group_name = place.name;
  options.global_ranks_in_group.assign(place.ranks.begin(), place.ranks.end());
}

// ProcessGroupGloo leaves abort() empty.
class AbortableGloo : public Gloo {
 public:
  using Gloo::Gloo;

  // A wait that times out makes Gloo fail everything in flight in its context
  // and close the connections.
  void abort() override {
    for (const auto& context : contexts_) {
      char nothing = 0;
      try {
        context->createUnboundBuffer(&nothing, sizeof(nothing))
            ->waitRecv(nullptr, std::chrono::milliseconds(0));
      } catch (const std::exception&) {
        // The timeout that closes them.
      }
    }
  }
};

// Runs on a thread of Gloo's, in turn with Gloo's own collectives.
class SharedMemoryWork : public Gloo::AsyncWork {
 public:
  SharedMemoryWork(std::shared_ptr<gloo::Context> context, c10d::OpType type,
                   uint64_t number, std::chrono::milliseconds timeout,
                   const char* name, Tensors inputs, Tensors outputs,
                   std::function<void()> run)
      : AsyncWork(std::move(context), {outputs}, type, number, timeout, name,
                  inputs),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        run_(std::move(run)) {}

  void run() override {
    // The operators of this thread are not the model's.
    const at::DisableRecordFunctionGuard unrecorded;
    run_();
  }
  const Tensors getInputTensors() override { return inputs_; }
  const Tensors getOutputTensors() override { return outputs_; }

 private:
  const Tensors inputs_, outputs_;
  const std::function<void()> run_;
};

// Gloo, but for what ranks of one machine do faster. With one thread, so that
// the collectives of all ranks are in the same order.
class SharedMemoryGloo : public AbortableGloo {
 public:
  SharedMemoryGloo(const BackendRequest& request,
                   c10::intrusive_ptr<Options> options)
      : AbortableGloo(request.store, request.place.rank, request.place.size(),
                      std::move(options)),
        memory_(std::make_shared<SharedMemory>(
            *request.store, request.place.ranks, request.place.rank)) {}
  // What is in flight holds the memory.
  ~SharedMemoryGloo() override = default;

  void abort() override {
    memory_->Abort();
    AbortableGloo::abort();
  }

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& opts) override {
    if (tensors.size() != 1 ||
        !SharedMemory::Carries(tensors[0], opts.reduceOp)) {
      return AbortableGloo::allreduce(tensors, opts);
    }
    const auto timeout = TimeoutOf(opts);
    return Start(
        c10d::OpType::ALLREDUCE, "shm:all_reduce", tensors[0], tensors[0],
        timeout,
        [memory = memory_, data = Flat(tensors[0]), timeout,
         op = opts.reduceOp] { memory->AllReduce(data, op, timeout); });
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override {
    if (!SharedMemory::Carries(input)) {
      return AbortableGloo::_allgather_base(output, input, opts);
    }
    const auto timeout = TimeoutOf(opts);
    return Start(c10d::OpType::_ALLGATHER_BASE, "shm:all_gather", input, output,
                 timeout,
                 [memory = memory_, to = Flat(output), from = Flat(input),
                  timeout] { memory->AllGather(to, from, timeout); });
  }

  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& opts) override {
    if (!SharedMemory::Carries(input, opts.reduceOp)) {
      return AbortableGloo::_reduce_scatter_base(output, input, opts);
    }
    const auto timeout = TimeoutOf(opts);
    return Start(
        c10d::OpType::_REDUCE_SCATTER_BASE, "shm:reduce_scatter", input, output,
        timeout,
        [memory = memory_, to = Flat(output), from = Flat(input), timeout,
         op = opts.reduceOp] { memory->ReduceScatter(to, from, op, timeout); });
  }

 private:
  // The memory of `tensor`, without its history.
  static at::Tensor Flat(const at::Tensor& tensor) {
    TORCH_CHECK(tensor.is_non_overlapping_and_dense(),
                "a collective's tensor must be dense; call contiguous()");
    return at::from_blob(tensor.data_ptr(), {tensor.numel()},
                         at::TensorOptions(tensor.scalar_type()));
  }

  template <typename Options>
  std::chrono::milliseconds TimeoutOf(const Options& opts) const {
    return opts.timeout == c10d::kUnsetTimeout ? options_->timeout
                                               : opts.timeout;
  }

  WorkPtr Start(c10d::OpType type, const char* name, const at::Tensor& input,
                const at::Tensor& output, std::chrono::milliseconds timeout,
                std::function<void()> run) {
    auto work = c10::make_intrusive<SharedMemoryWork>(
        contexts_[0], type, ++seq_, timeout, name, Tensors{input},
        Tensors{output}, std::move(run));
    enqueue(work);
    return work;
  }

  const std::shared_ptr<SharedMemory> memory_;
};

// `make` makes the backend from Gloo's options.
template <typename Make>
absl::StatusOr<BackendPtr> Connect(const BackendRequest& request, Make make) {
  try {
    auto options = Gloo::Options::create(
        absl::ToChronoMilliseconds(request.collective_timeout));
    options->devices.push_back(GlooDevice(request.env));
    Describe(request.place, *options);
    return BackendPtr(make(options));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        ConnectingFailed("Gloo", request), PlainMessage(error),
        "; if machines have several networks, name the interface in "
        "GLOO_SOCKET_IFNAME"));
  }
}

}  // namespace

absl::StatusOr<BackendPtr> MakeGloo(const BackendRequest& request) {
  return Connect(request, [&](const auto& options) {
    return c10::make_intrusive<AbortableGloo>(request.store, request.place.rank,
                                              request.place.size(), options);
  });
}

absl::StatusOr<BackendPtr> MakeSharedMemory(const BackendRequest& request) {
  if (request.place.size() == 1) return MakeGloo(request);
  return Connect(request, [&](const auto& options) {
    options->threads = 1;
    return c10::make_intrusive<SharedMemoryGloo>(request, options);
  });
}

}  // namespace rankwise
