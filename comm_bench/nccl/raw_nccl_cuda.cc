#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "ATen/cuda/MemPool.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/core/ScalarType.h"
#include "c10/cuda/CUDACachingAllocator.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "c10/util/Exception.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/nccl/nccl_log.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"

namespace rankwise::comm_bench {
namespace {

// `comm` may be nullptr.
absl::Status StatusOf(ncclResult_t result, const std::string& call,
                      ncclComm_t comm) {
  if (result == ncclSuccess) return absl::OkStatus();
  const char* const last = ncclGetLastError(comm);
  const std::string detail =
      last == nullptr || *last == '\0' ? "" : absl::StrCat("; ", last);
  return absl::InternalError(
      absl::StrCat(call, ": ", ncclGetErrorString(result), detail));
}

// Throws c10::Error, like c10d's calls.
void Check(ncclResult_t result, const std::string& call, ncclComm_t comm) {
  const absl::Status status = StatusOf(result, call, comm);
  TORCH_CHECK(status.ok(), std::string(status.message()));
}

ncclDataType_t TypeOf(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return ncclFloat32;
    case c10::ScalarType::Double:
      return ncclFloat64;
    case c10::ScalarType::Half:
      return ncclFloat16;
    case c10::ScalarType::BFloat16:
      return ncclBfloat16;
    case c10::ScalarType::Int:
      return ncclInt32;
    case c10::ScalarType::Long:
      return ncclInt64;
    case c10::ScalarType::Byte:
      return ncclUint8;
    default:
      TORCH_CHECK(false, "nccl.h has no type for ", c10::toString(dtype));
  }
}

ncclRedOp_t OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::AVG:
      return ncclAvg;
    case ReduceOp::MIN:
      return ncclMin;
    case ReduceOp::MAX:
      return ncclMax;
    case ReduceOp::PRODUCT:
      return ncclProd;
    default:
      return ncclSum;
  }
}

const char* NameOf(NcclCall::Kind kind) {
  constexpr const char* kNames[] = {
      "ncclAllReduce",     "ncclBroadcast", "ncclReduce", "ncclAllGather",
      "ncclReduceScatter", "ncclSend",      "ncclRecv"};
  return kNames[static_cast<int>(kind)];
}

class Registered : public RegisteredMemory {
 public:
  Registered(ncclComm_t comm, c10::Device device)
      : comm_(comm), device_(device) {}

  at::Tensor New(int64_t count, c10::ScalarType dtype) override {
    const c10::cuda::CUDAGuard guard(device_);
    const size_t bytes = static_cast<size_t>(count) * c10::elementSize(dtype);
    void* memory = nullptr;
    Check(ncclMemAlloc(&memory, bytes), "ncclMemAlloc", comm_);
    void* handle = nullptr;
    const ncclResult_t registered =
        ncclCommRegister(comm_, memory, bytes, &handle);
    if (registered != ncclSuccess) (void)ncclMemFree(memory);
    Check(registered, "ncclCommRegister", comm_);
    // The device is idle when a row's buffers are freed.
    const auto free = [comm = comm_, device = device_, handle](void* pointer) {
      const c10::cuda::CUDAGuard own_guard(device);
      (void)ncclCommDeregister(comm, handle);
      (void)ncclMemFree(pointer);
    };
    return at::from_blob(memory, {count}, free,
                         at::TensorOptions().dtype(dtype).device(device_),
                         device_);
  }

 private:
  const ncclComm_t comm_;
  const c10::Device device_;
};

class NcclLayer : public Layer {
 public:
  NcclLayer(ncclComm_t comm, int rank, c10::Device device)
      : comm_(comm),
        rank_(rank),
        device_(device),
        exceptions_(std::uncaught_exceptions()) {}

  // Does not wait for failed calls.
  ~NcclLayer() override {
    const c10::cuda::CUDAGuard guard(device_);
    if (failed_ || std::uncaught_exceptions() > exceptions_) {
      (void)ncclCommAbort(comm_);
    } else {
      (void)ncclCommDestroy(comm_);
    }
  }

  std::string name() const override { return "nccl"; }
  int rank() const override { return rank_; }

  // Planned once, outside the measured calls.
  Start Prepare(const Collective& collective, const Call& call) override {
    return [this, &collective, groups = NcclCallsOf(collective, call),
            op = call.op](Buffers& buffers, Works&) {
      for (const NcclGroup& group : groups) {
        Run(collective.name, group, buffers.input, buffers.output, op);
      }
    };
  }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device) override {
    return std::make_unique<Registered>(comm_, device_);
  }

 private:
  // Enqueues the calls in the device's current stream and returns. `input` and
  // `output` are contiguous and on the device.
  void Run(const char* collective, const NcclGroup& group,
           const at::Tensor& input, const at::Tensor& output, ReduceOp op) {
    const c10::cuda::CUDAGuard guard(device_);
    const bool grouped = group.size() > 1;
    const char* name = "ncclGroupStart";
    ncclResult_t result = grouped ? ncclGroupStart() : ncclSuccess;
    for (const NcclCall& call : group) {
      if (result != ncclSuccess) break;
      name = NameOf(call.kind);
      result = RunOne(call, input, output, op);
    }
    if (grouped) {  // even after a failed call
      const ncclResult_t end = ncclGroupEnd();
      if (result == ncclSuccess && end != ncclSuccess) {
        name = "ncclGroupEnd";
        result = end;
      }
    }
    failed_ |= result != ncclSuccess;
    Check(result, absl::StrCat(collective, ": ", name), comm_);
  }

  ncclResult_t RunOne(const NcclCall& call, const at::Tensor& input,
                      const at::Tensor& output, ReduceOp op) {
    using Kind = NcclCall::Kind;
    const c10::ScalarType dtype =
        (output.defined() ? output : input).scalar_type();
    const ncclDataType_t type = TypeOf(dtype);
    const auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
    const auto at_offset = [bytes](const at::Tensor& tensor, int64_t offset) {
      return tensor.defined()
                 ? static_cast<char*>(tensor.data_ptr()) + offset * bytes
                 : nullptr;
    };
    const void* const from = at_offset(input, call.input_offset);
    void* const to = at_offset(output, call.output_offset);
    const auto count = static_cast<size_t>(call.count);
    const int peer = call.peer;
    const cudaStream_t stream =
        c10::cuda::getCurrentCUDAStream(device_.index()).stream();
    switch (call.kind) {
      case Kind::kAllReduce:
        return ncclAllReduce(from, to, count, type, OpOf(op), comm_, stream);
      case Kind::kBroadcast:
        return ncclBroadcast(from, to, count, type, peer, comm_, stream);
      case Kind::kReduce:
        return ncclReduce(from, to, count, type, OpOf(op), peer, comm_, stream);
      case Kind::kAllGather:
        return ncclAllGather(from, to, count, type, comm_, stream);
      case Kind::kReduceScatter:
        return ncclReduceScatter(from, to, count, type, OpOf(op), comm_,
                                 stream);
      case Kind::kSend:
        return ncclSend(from, count, type, peer, comm_, stream);
      case Kind::kReceive:
        return ncclRecv(to, count, type, peer, comm_, stream);
    }
    return ncclInvalidArgument;
  }

  const ncclComm_t comm_;
  const int rank_;  // in the group
  const c10::Device device_;
  const int exceptions_;  // at construction
  bool failed_ = false;
};

using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using NcclPtr = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

// During its lifetime, this thread's allocations use the pool, as with Python's
// torch.cuda.use_mem_pool.
class InPool {
 public:
  explicit InPool(at::cuda::MemPool& pool) : pool_(pool) {
    const auto own = std::this_thread::get_id();
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(
        pool_.device(), pool_.id(),
        [own](cudaStream_t) { return std::this_thread::get_id() == own; });
  }
  ~InPool() {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(pool_.device(),
                                                       pool_.id());
    c10::cuda::CUDACachingAllocator::releasePool(pool_.device(), pool_.id());
  }
  InPool(const InPool&) = delete;
  InPool& operator=(const InPool&) = delete;

 private:
  at::cuda::MemPool& pool_;
};

class C10dRegistered : public RegisteredMemory {
 public:
  // `device` must be current.
  C10dRegistered(NcclPtr nccl, c10::Device device,
                 std::shared_ptr<CUDAAllocator> allocator)
      : nccl_(std::move(nccl)), device_(device), pool_(std::move(allocator)) {
    // Segments that the pool allocates from now on are registered immediately.
    nccl_->registerMemPool(&pool_);
  }

  ~C10dRegistered() override {
    try {
      nccl_->deregisterMemPool(&pool_);
    } catch (const std::exception&) {  // the communicator and its registrations
                                       // no longer exist
    }
  }

  at::Tensor New(int64_t count, c10::ScalarType dtype) override {
    const c10::cuda::CUDAGuard guard(device_);
    const InPool in_pool(pool_);
    return at::empty({count}, at::TensorOptions().dtype(dtype).device(device_));
  }

 private:
  const NcclPtr nccl_;
  const c10::Device device_;
  at::cuda::MemPool pool_;
};

// Returns the 128-byte id shared by the ranks of one communicator.
absl::StatusOr<std::string> NewId() {
  ncclUniqueId id;
  RETURN_IF_ERROR(StatusOf(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr));
  return std::string(id.internal, sizeof(id.internal));
}

// Blocks until all `world_size` ranks have called it with the same `id`.
absl::StatusOr<std::unique_ptr<Layer>> Connect(const std::string& id, int rank,
                                               int world_size,
                                               c10::Device device) {
  ncclUniqueId unique;
  if (!device.is_cuda() || id.size() != sizeof(unique.internal)) {
    return absl::InvalidArgumentError(
        "a communicator of NCCL needs a GPU and ncclGetUniqueId's id");
  }
  std::memcpy(unique.internal, id.data(), id.size());
  const c10::cuda::CUDAGuard guard(device);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = nullptr;
  RETURN_IF_ERROR(
      StatusOf(ncclCommInitRankConfig(&comm, world_size, unique, rank, &config),
               "ncclCommInitRankConfig", nullptr));
  return std::make_unique<NcclLayer>(comm, rank, device);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> ConnectNcclLayer(
    Control& control, const std::vector<int>& ranks, c10::Device device) {
  ASSIGN_OR_RETURN(const std::string id, ShareNcclId(control, ranks, NewId));
  const auto own = std::find(ranks.begin(), ranks.end(), control.rank());
  absl::StatusOr<std::unique_ptr<Layer>> layer =
      ranks.empty() ? Connect(id, control.rank(), control.world_size(), device)
                    : Connect(id, static_cast<int>(own - ranks.begin()),
                              static_cast<int>(ranks.size()), device);
  RETURN_IF_ERROR(AllOk(control, layer.status(), "connect through nccl.h"));
  return layer;
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredWithC10d(
    c10d::ProcessGroup& group, c10::Device device) {
  if (!device.is_cuda()) {
    return absl::InvalidArgumentError(
        "--registered: only NCCL registers buffers; run it on GPUs");
  }
  const c10::cuda::CUDAGuard guard(device);
  try {
    NcclPtr nccl = c10::dynamic_intrusive_pointer_cast<c10d::ProcessGroupNCCL>(
        WithoutMonitoring(group.getBackend(device.type())));
    if (nccl == nullptr) {
      return absl::InvalidArgumentError(
          "--registered: the process group's backend for GPUs is not NCCL");
    }
    auto allocator =
        std::dynamic_pointer_cast<CUDAAllocator>(nccl->getMemAllocator());
    if (allocator == nullptr) {
      return absl::FailedPreconditionError(
          "--registered: NCCL's allocator cannot feed a memory pool");
    }
    return std::make_unique<C10dRegistered>(std::move(nccl), device,
                                            std::move(allocator));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("--registered: ", PlainMessage(error)));
  }
}

void RereadNcclVariables() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ncclResetDebugInit();
#pragma GCC diagnostic pop
}

}  // namespace rankwise::comm_bench
