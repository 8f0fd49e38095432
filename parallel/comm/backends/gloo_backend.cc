#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/from_blob.h"
#include "ATen/record_function.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gloo/transport/unbound_buffer.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/backends/gloo_address.h"
#include "parallel/comm/backends/shared_memory.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/launch/interfaces.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"

namespace rankwise {
namespace {

using Gloo = c10d::ProcessGroupGloo;
using Tensors = std::vector<at::Tensor>;
using Timeout = std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Empty for a job on one machine, which uses the loopback by default.
absl::StatusOr<std::vector<GlooAddress>> Addresses(
    const BackendRequest& request) {
  const RankEnv& env = request.env;
  const bool is_local = env.local_world_size == env.world_size;
  if (is_local && env.network_interface.empty())
    return std::vector<GlooAddress>();
  return AgreeOnGlooAddresses(request);
}

// The addresses tried by a failed attempt to connect.
std::string Tried(const BackendRequest& request,
                  const std::vector<GlooAddress>& addresses) {
  constexpr size_t kShown = 8;
  if (addresses.empty()) return "over the loopback interface";
  std::vector<std::string> others;
  const GlooAddress& own = addresses[static_cast<size_t>(request.place.rank)];
  for (const GlooAddress& each : addresses) {
    if (each.address != own.address)
      others.push_back(DescribeGlooAddress(each));
  }
  if (others.size() > kShown) {
    others.resize(kShown);
    others.push_back("...");
  }
  return absl::StrCat(
      DescribeGlooAddress(own), ", others: ", absl::StrJoin(others, ", "),
      "; check that these addresses can reach each other; if not, set "
      "GLOO_SOCKET_IFNAME to another interface");
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
        // The timeout that closes the connections.
      }
    }
  }
};

// Runs on a thread of Gloo, in sequence with Gloo's own collectives.
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

// A flat view of the memory of `tensor`, which must outlive it, outside its
// autograd graph.
at::Tensor Flat(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(),
              "a collective's tensor must be dense; call contiguous()");
  return at::from_blob(tensor.data_ptr(), {tensor.numel()},
                       at::TensorOptions(tensor.scalar_type()));
}

// Receives a message once, on the thread that waits for it or polls it. A
// failure, including a timeout, is final: every later wait() throws it.
class SharedMemoryReceive : public c10d::Work {
 public:
  SharedMemoryReceive(std::shared_ptr<SharedMemory> memory, at::Tensor tensor,
                      int from, int tag, Timeout timeout)
      : Work(from, c10d::OpType::RECV),
        memory_(std::move(memory)),
        tensor_(std::move(tensor)),
        data_(Flat(tensor_)),
        tag_(tag),
        timeout_(timeout) {}

  bool wait(Timeout timeout) override {
    const std::lock_guard lock(receiving_);
    if (!ended_) {
      End([&] {
        memory_->Receive(data_, rank_, tag_,
                         timeout == kNoTimeout ? timeout_ : timeout);
        return true;
      });
    }
    if (exception() != nullptr) std::rethrow_exception(exception());
    return true;
  }
  // Returns false while another thread is in wait().
  bool isCompleted() override {
    const std::unique_lock lock(receiving_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    if (!ended_) End([&] { return memory_->TryReceive(data_, rank_, tag_); });
    return ended_;
  }
  int sourceRank() const override { return rank_; }

 private:
  // Completes the work if `receive` returns true or throws.
  template <typename Receive>
  void End(Receive receive) {
    std::exception_ptr error;
    try {
      if (!receive()) return;
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    ended_ = true;
    finish(error);
  }

  const std::shared_ptr<SharedMemory> memory_;
  const at::Tensor tensor_, data_;  // data_ is a flat view of tensor_
  const int tag_;
  const Timeout timeout_;
  std::mutex receiving_;  // guards `ended_`
  bool ended_ = false;
};

// A message that was copied when it was sent.
class SharedMemorySend : public c10d::Work {
 public:
  explicit SharedMemorySend(int to) : Work(to, c10d::OpType::SEND) {}

  bool wait(Timeout) override { return true; }
  bool isCompleted() override { return true; }
};

// Gloo, with shared memory where that is faster. Uses one thread, so that all
// ranks run their collectives in the same order.
class SharedMemoryGloo : public AbortableGloo {
 public:
  SharedMemoryGloo(const BackendRequest& request,
                   c10::intrusive_ptr<Options> options)
      : AbortableGloo(request.store, request.place.rank, request.place.size(),
                      std::move(options)),
        memory_(std::make_shared<SharedMemory>(
            *request.store, request.place.ranks, request.place.rank)) {}
  // Calls in flight share ownership of the memory.
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
    CheckSizes("all_gather", output, input);
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
    CheckSizes("reduce_scatter", input, output);
    const auto timeout = TimeoutOf(opts);
    return Start(
        c10d::OpType::_REDUCE_SCATTER_BASE, "shm:reduce_scatter", input, output,
        timeout,
        [memory = memory_, to = Flat(output), from = Flat(input), timeout,
         op = opts.reduceOp] { memory->ReduceScatter(to, from, op, timeout); });
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    if (!CarriesMessage(tensors)) return AbortableGloo::send(tensors, to, tag);
    memory_->Send(Flat(tensors[0]), to, tag);
    return c10::make_intrusive<SharedMemorySend>(to);
  }

  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    if (!CarriesMessage(tensors))
      return AbortableGloo::recv(tensors, from, tag);
    return c10::make_intrusive<SharedMemoryReceive>(memory_, tensors[0], from,
                                                    tag, options_->timeout);
  }

 private:
  // Depends on a tensor's type alone: sender and receiver agree.
  static bool CarriesMessage(const Tensors& tensors) {
    return tensors.size() == 1 && SharedMemory::Carries(tensors[0]);
  }

  // Checks before the ranks meet, as c10d does: a rank that fails later would
  // leave its peers waiting.
  void CheckSizes(const char* call, const at::Tensor& whole,
                  const at::Tensor& part) const {
    TORCH_CHECK(whole.is_cpu() && part.is_cpu() &&
                    whole.scalar_type() == part.scalar_type() &&
                    whole.numel() == part.numel() * getSize(),
                call, ": ", whole.numel(), " elements of ", whole.scalar_type(),
                " on ", whole.device(), " are not ", part.numel(), " of ",
                part.scalar_type(), " on ", part.device(), " for each of ",
                getSize(), " ranks");
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

// Result of an attempt that may outlast its caller.
struct Attempt {
  BackendPtr backend;
  std::string error = "nothing was tried";
};

// `make` creates the backend from the request and Gloo's options on a separate
// thread, since Gloo itself waits for peers for several times the collective
// timeout.
template <typename Make>
absl::StatusOr<BackendPtr> ConnectAt(const BackendRequest& request,
                                     const std::vector<GlooAddress>& addresses,
                                     Make make) {
  ASSIGN_OR_RETURN(
      const std::string own,
      addresses.empty()
          ? LoopbackAddress()
          : absl::StatusOr<std::string>(
                addresses[static_cast<size_t>(request.place.rank)].address));
  const auto attempt = std::make_shared<Attempt>();
  const bool ended =
      RunWithin(request.connect_timeout, [attempt, request, own, make] {
        try {
          auto options = Gloo::Options::create(
              absl::ToChronoMilliseconds(request.collective_timeout));
          options->devices.push_back(Gloo::createDeviceForHostname(own));
          Describe(request.place, *options);
          attempt->backend = make(request, options);
        } catch (const std::exception& error) {
          attempt->error = PlainMessage(error);
        }
      });
  if (!ended) {
    return absl::DeadlineExceededError(absl::StrCat(
        "not connected within ", absl::FormatDuration(request.connect_timeout),
        ": ", Tried(request, addresses)));
  }
  if (attempt->backend != nullptr) return std::move(attempt->backend);
  return absl::UnavailableError(
      absl::StrCat(attempt->error, ": ", Tried(request, addresses)));
}

template <typename Make>
absl::StatusOr<BackendPtr> Connect(const BackendRequest& request, Make make) {
  absl::StatusOr<BackendPtr> backend;
  try {
    const absl::StatusOr<std::vector<GlooAddress>> addresses =
        Addresses(request);
    backend = addresses.ok() ? ConnectAt(request, *addresses, make)
                             : addresses.status();
  } catch (const std::exception& error) {  // from the store
    backend = absl::UnavailableError(PlainMessage(error));
  }
  if (backend.ok()) return backend;
  return absl::Status(backend.status().code(),
                      absl::StrCat(ConnectingFailed("Gloo", request),
                                   backend.status().message()));
}

}  // namespace

absl::StatusOr<BackendPtr> MakeGloo(const BackendRequest& request) {
  return Connect(request, [](const BackendRequest& own, const auto& options) {
    return c10::make_intrusive<AbortableGloo>(own.store, own.place.rank,
                                              own.place.size(), options);
  });
}

absl::StatusOr<BackendPtr> MakeSharedMemory(const BackendRequest& request) {
  if (request.place.size() == 1) return MakeGloo(request);
  return Connect(request, [](const BackendRequest& own, const auto& options) {
    options->threads = 1;
    return c10::make_intrusive<SharedMemoryGloo>(own, options);
  });
}

}  // namespace rankwise
