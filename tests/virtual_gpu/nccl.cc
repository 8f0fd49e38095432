// NCCL's functions: every collective is a set of messages over Mailboxes, run
// on the stream's thread, and a reduction in rank order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/virtual_gpu/counters.h"
#include "tests/virtual_gpu/devices.h"
#include "tests/virtual_gpu/mailboxes.h"
#include "tests/virtual_gpu/streams.h"

namespace gpu = rankwise::virtual_gpu;
using gpu::Mailboxes;

struct ncclComm {
  ncclComm(std::string id, int rank, int ranks, int device)
      : id(std::move(id)),
        device(device),
        mail(this->id, rank, ranks, gpu::MachineIndex(device)) {}

  const std::string id;
  const int device;
  Mailboxes mail;
  int splits = 0;
};

namespace {

thread_local std::string last_error;

ncclResult_t Refuse(ncclResult_t result, std::string why) {
  last_error = std::move(why);
  return result;
}

size_t Bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

// Operations other than ncclAvg: sums of values times a factor.
struct Factors {
  std::mutex mutex;
  std::map<int, double> by_operation;
};
Factors& TheFactors() {
  static Factors& factors = *new Factors;
  return factors;
}

double ReadScalar(const void* scalar, ncclDataType_t type) {
  const void* const value = gpu::Contents(scalar);
  switch (type) {
    case ncclFloat32:
      return static_cast<double>(*static_cast<const float*>(value));
    case ncclFloat64:
      return *static_cast<const double*>(value);
    case ncclFloat16:
      return static_cast<double>(
          __half2float(*static_cast<const __half*>(value)));
    case ncclBfloat16:
      return static_cast<double>(
          __bfloat162float(*static_cast<const __nv_bfloat16*>(value)));
    default:
      return 1;
  }
}

// Converts Value to Wide for computation, and back.
template <typename Value, typename Wide>
void ReduceValues(const std::vector<const char*>& inputs, char* output,
                  size_t count, int operation) {
  double factor = 1;
  if (operation >= ncclNumOps) {
    Factors& factors = TheFactors();
    const std::lock_guard lock(factors.mutex);
    factor = factors.by_operation[operation];
  }
  for (size_t i = 0; i < count; ++i) {
    const auto value = [&](size_t rank) {
      Value stored;
      std::memcpy(&stored, inputs[rank] + i * sizeof(Value), sizeof(Value));
      const Wide wide = static_cast<Wide>(stored);
      return operation < ncclNumOps
                 ? wide
                 : static_cast<Wide>(static_cast<double>(wide) * factor);
    };
    Wide result = value(0);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const Wide next = value(rank);
      if (operation == ncclProd) {
        result *= next;
      } else if (operation == ncclMax) {
        result = std::max(result, next);
      } else if (operation == ncclMin) {
        result = std::min(result, next);
      } else {
        result += next;
      }
    }
    if (operation == ncclAvg) result /= static_cast<Wide>(inputs.size());
    const Value stored = static_cast<Value>(result);
    std::memcpy(output + i * sizeof(Value), &stored, sizeof(Value));
  }
}

void Reduce(const std::vector<const char*>& inputs, char* output, size_t count,
            ncclDataType_t type, int operation) {
  switch (type) {
    case ncclInt8:
      return ReduceValues<int8_t, int64_t>(inputs, output, count, operation);
    case ncclUint8:
      return ReduceValues<uint8_t, int64_t>(inputs, output, count, operation);
    case ncclInt32:
      return ReduceValues<int32_t, int64_t>(inputs, output, count, operation);
    case ncclUint32:
      return ReduceValues<uint32_t, int64_t>(inputs, output, count, operation);
    case ncclInt64:
      return ReduceValues<int64_t, int64_t>(inputs, output, count, operation);
    case ncclUint64:
      return ReduceValues<uint64_t, uint64_t>(inputs, output, count, operation);
    case ncclFloat16:
      return ReduceValues<__half, float>(inputs, output, count, operation);
    case ncclBfloat16:
      return ReduceValues<__nv_bfloat16, float>(inputs, output, count,
                                                operation);
    case ncclFloat32:
      return ReduceValues<float, float>(inputs, output, count, operation);
    default:
      return ReduceValues<double, double>(inputs, output, count, operation);
  }
}

// Messages that a call adds to its group each time it runs, and the work after
// their arrival.
using Transfers = std::vector<Mailboxes::Transfer>;
using Finish = std::function<void()>;
using Begin = std::function<Finish(Transfers&)>;

struct Call {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  const char* name = "";
  std::vector<gpu::Access> accesses;
  Begin begin;
};

thread_local int group_depth = 0;
thread_local std::vector<Call> group_calls;
thread_local std::vector<std::pair<ncclComm_t*, ncclComm_t>> group_inits;

void Send(Transfers& transfers, int peer, const char* data, size_t bytes) {
  transfers.push_back({true, peer, const_cast<char*>(data), bytes, 0});
}
void Receive(Transfers& transfers, int peer, char* data, size_t bytes) {
  transfers.push_back({false, peer, data, bytes, 0});
}

// Enqueues the calls of a group on one stream and communicator.
ncclResult_t Enqueue(std::vector<Call> calls) {
  ncclComm_t comm = calls[0].comm;
  const int before = gpu::CurrentDevice();
  gpu::SetCurrentDevice(comm->device);
  gpu::Operation operation;
  operation.name = calls[0].name;
  operation.may_block = true;
  operation.seconds = 10e-6;
  for (const Call& call : calls) {
    operation.accesses.insert(operation.accesses.end(), call.accesses.begin(),
                              call.accesses.end());
  }
  const cudaStream_t stream = calls[0].stream;
  operation.run = [comm, calls = std::move(calls)] {
    Transfers transfers;
    std::vector<Finish> finish;
    for (const Call& call : calls) finish.push_back(call.begin(transfers));
    if (!comm->mail.Run(transfers)) return;
    for (const Finish& step : finish)
      if (step) step();
  };
  ++gpu::Counts().collectives;
  const cudaError_t error = gpu::Enqueue(stream, std::move(operation));
  gpu::SetCurrentDevice(before);
  if (error == cudaSuccess) return ncclSuccess;
  return Refuse(ncclUnhandledCudaError, cudaGetErrorString(error));
}

ncclResult_t EnqueueGroup(std::vector<Call> calls) {
  while (!calls.empty()) {
    const auto others = std::stable_partition(
        calls.begin(), calls.end(),
        [comm = calls[0].comm, stream = calls[0].stream](const Call& call) {
          return call.comm == comm && call.stream == stream;
        });
    std::vector<Call> rest(std::make_move_iterator(others),
                           std::make_move_iterator(calls.end()));
    calls.erase(others, calls.end());
    if (const ncclResult_t result = Enqueue(std::move(calls));
        result != ncclSuccess)
      return result;
    calls = std::move(rest);
  }
  return ncclSuccess;
}

ncclResult_t Add(Call call) {
  for (const gpu::Access& access : call.accesses) {
    if (access.bytes == 0) continue;
    if (gpu::DeviceOf(access.start) != call.comm->device)
      return Refuse(ncclInvalidArgument, std::string(call.name) +
                                             ": a buffer is not on GPU " +
                                             std::to_string(call.comm->device));
  }
  if (group_depth == 0) return EnqueueGroup({std::move(call)});
  group_calls.push_back(std::move(call));
  return ncclSuccess;
}

// `bytes` at `mine` from all ranks to all ranks, in rank order, including this
// rank's own, while `kept` lives.
struct Gathered {
  std::vector<std::vector<char>> kept;
  std::vector<const char*> inputs;
};

std::shared_ptr<Gathered> ReceiveFromAll(Transfers& transfers, ncclComm_t comm,
                                         const char* mine, size_t bytes) {
  auto all = std::make_shared<Gathered>();
  all->kept.resize(static_cast<size_t>(comm->mail.ranks()));
  for (int peer = 0; peer < comm->mail.ranks(); ++peer) {
    if (peer == comm->mail.rank()) {
      all->inputs.push_back(mine);
      continue;
    }
    std::vector<char>& space = all->kept[static_cast<size_t>(peer)];
    space.resize(bytes);
    Receive(transfers, peer, space.data(), bytes);
    all->inputs.push_back(space.data());
  }
  return all;
}

// After all inputs have arrived, reduces them to `to`.
Finish ReduceInto(void* to, std::shared_ptr<Gathered> all, size_t count,
                  ncclDataType_t type, int operation) {
  return
      [=] { Reduce(all->inputs, gpu::Contents(to), count, type, operation); };
}

void ForPeers(ncclComm_t comm, const std::function<void(int)>& body) {
  for (int peer = 0; peer < comm->mail.ranks(); ++peer)
    if (peer != comm->mail.rank()) body(peer);
}

ncclResult_t FinishInit(ncclComm_t* result, ncclComm_t comm) {
  if (!comm->mail.AwaitAll()) return ncclInternalError;
  if (const int other = comm->mail.RankOnSameDevice(); other >= 0)
    return Refuse(ncclInvalidUsage, "Duplicate GPU detected : rank " +
                                        std::to_string(comm->mail.rank()) +
                                        " and rank " + std::to_string(other) +
                                        " both on one CUDA device");
  *result = comm;
  return ncclSuccess;
}

std::string RandomId() {
  std::random_device device;
  char text[40];
  std::snprintf(text, sizeof(text), "%08x%08x%08x", device(), device(),
                device());
  return text;
}

ncclResult_t Unsupported(const char* what) {
  return Refuse(ncclInvalidUsage, std::string(what) + ": not virtual");
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess           ? "no error"
         : result == ncclInvalidUsage    ? "invalid usage"
         : result == ncclInvalidArgument ? "invalid argument"
                                         : "unhandled cuda error";
}
void ncclResetDebugInit() {}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "%s", RandomId().c_str());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id,
                              int rank) {
  auto* const made =
      new ncclComm(id.internal, rank, ranks, gpu::CurrentDevice());
  if (group_depth == 0) return FinishInit(comm, made);
  group_inits.emplace_back(comm, made);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks,
                                    ncclUniqueId id, int rank, ncclConfig_t*) {
  return ncclCommInitRank(comm, ranks, id, rank);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank,
                                      int, ncclUniqueId* ids, ncclConfig_t*) {
  return ncclCommInitRank(comm, ranks, ids[0], rank);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  const std::string id = RandomId();
  for (int i = 0; i < count; ++i)
    comms[i] = new ncclComm(id, i, count, devices == nullptr ? i : devices[i]);
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t* result, ncclConfig_t*) {
  const auto all = comm->mail.Exchange({color, key});
  if (all.empty()) return ncclInternalError;
  const int number = ++comm->splits;
  *result = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  int rank = 0, ranks = 0;
  for (int i = 0; i < comm->mail.ranks(); ++i) {
    const auto [its_color, its_key] = all[static_cast<size_t>(i)];
    if (its_color != color) continue;
    ++ranks;
    rank += std::pair(its_key, i) < std::pair(key, comm->mail.rank());
  }
  auto* const made = new ncclComm(
      comm->id + "-" + std::to_string(number) + "-" + std::to_string(color),
      rank, ranks, comm->device);
  return FinishInit(result, made);
}
ncclResult_t ncclCommShrink(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*,
                            int) {
  return Unsupported("ncclCommShrink");
}

// A communicator's memory is not freed, as its last operations may still run.
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  // as in NCCL, nullptr is not an error
  if (comm != nullptr) comm->mail.Abort();
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->mail.ranks();
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->mail.rank();
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** pointer, size_t bytes) {
  return cudaMalloc(pointer, bytes) == cudaSuccess ? ncclSuccess
                                                   : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* pointer) {
  return cudaFree(pointer) == cudaSuccess ? ncclSuccess
                                          : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(ncclComm_t comm, void* buffer, size_t bytes,
                              void** handle) {
  if (!gpu::IsAllocated(buffer, bytes) || gpu::DeviceOf(buffer) != comm->device)
    return Refuse(ncclInvalidArgument, "registering memory of another device");
  *handle = buffer;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t, void*) { return ncclSuccess; }
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*,
                                    int) {
  return Unsupported("ncclCommWindowRegister");
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* operation, void* scalar,
                                      ncclDataType_t type,
                                      ncclScalarResidence_t, ncclComm_t) {
  Factors& factors = TheFactors();
  const std::lock_guard lock(factors.mutex);
  const int number = ncclNumOps + static_cast<int>(factors.by_operation.size());
  factors.by_operation[number] = ReadScalar(scalar, type);
  *operation = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  for (const auto& [result, comm] : std::exchange(group_inits, {})) {
    if (const ncclResult_t made = FinishInit(result, comm); made != ncclSuccess)
      return made;
  }
  return EnqueueGroup(std::exchange(group_calls, {}));
}
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  return Unsupported("ncclGroupSimulateEnd");
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * Bytes(type);
  return Add({comm,
              stream,
              "ncclSend",
              {{from, bytes, false}},
              [=](Transfers& transfers) {
                Send(transfers, peer, gpu::Contents(from), bytes);
                return Finish();
              }});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * Bytes(type);
  return Add({comm,
              stream,
              "ncclRecv",
              {{to, bytes, true}},
              [=](Transfers& transfers) {
                Receive(transfers, peer, gpu::Contents(to), bytes);
                return Finish();
              }});
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * Bytes(type);
  std::vector<gpu::Access> accesses = {{to, bytes, true}};
  if (comm->mail.rank() == root) accesses.push_back({from, bytes, false});
  return Add(
      {comm, stream, "ncclBroadcast", accesses, [=](Transfers& transfers) {
         if (comm->mail.rank() != root) {
           Receive(transfers, root, gpu::Contents(to), bytes);
           return Finish();
         }
         ForPeers(comm, [&](int peer) {
           Send(transfers, peer, gpu::Contents(from), bytes);
         });
         return Finish([=] {
           std::memmove(gpu::Contents(to), gpu::Contents(from), bytes);
         });
       }});
}
ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type,
                       int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count,
                           ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * Bytes(type);
  return Add({comm,
              stream,
              "ncclAllReduce",
              {{from, bytes, false}, {to, bytes, true}},
              [=](Transfers& transfers) {
                const char* const mine = gpu::Contents(from);
                ForPeers(comm,
                         [&](int peer) { Send(transfers, peer, mine, bytes); });
                const auto all = ReceiveFromAll(transfers, comm, mine, bytes);
                return ReduceInto(to, all, count, type, operation);
              }});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count,
                        ncclDataType_t type, ncclRedOp_t operation, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * Bytes(type);
  std::vector<gpu::Access> accesses = {{from, bytes, false}};
  if (comm->mail.rank() == root) accesses.push_back({to, bytes, true});
  return Add({comm, stream, "ncclReduce", accesses, [=](Transfers& transfers) {
                const char* const mine = gpu::Contents(from);
                if (comm->mail.rank() != root) {
                  Send(transfers, root, mine, bytes);
                  return Finish();
                }
                const auto all = ReceiveFromAll(transfers, comm, mine, bytes);
                return ReduceInto(to, all, count, type, operation);
              }});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * Bytes(type);
  const size_t ranks = static_cast<size_t>(comm->mail.ranks());
  return Add({comm,
              stream,
              "ncclAllGather",
              {{from, bytes, false}, {to, bytes * ranks, true}},
              [=](Transfers& transfers) {
                const char* const mine = gpu::Contents(from);
                char* const all = gpu::Contents(to);
                const auto place = [=](int rank) {
                  return all + static_cast<size_t>(rank) * bytes;
                };
                ForPeers(comm, [&](int peer) {
                  Send(transfers, peer, mine, bytes);
                  Receive(transfers, peer, place(peer), bytes);
                });
                return Finish([=] {
                  std::memmove(place(comm->mail.rank()), mine, bytes);
                });
              }});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count,
                               ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * Bytes(type);
  const size_t ranks = static_cast<size_t>(comm->mail.ranks());
  return Add({comm,
              stream,
              "ncclReduceScatter",
              {{from, bytes * ranks, false}, {to, bytes, true}},
              [=](Transfers& transfers) {
                const char* const parts = gpu::Contents(from);
                const auto part = [=](int rank) {
                  return parts + static_cast<size_t>(rank) * bytes;
                };
                ForPeers(comm, [&](int peer) {
                  Send(transfers, peer, part(peer), bytes);
                });
                const auto all = ReceiveFromAll(transfers, comm,
                                                part(comm->mail.rank()), bytes);
                return ReduceInto(to, all, count, type, operation);
              }});
}

ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count,
                          ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  const size_t bytes = count * Bytes(type);
  const size_t ranks = static_cast<size_t>(comm->mail.ranks());
  return Add({comm,
              stream,
              "ncclAlltoAll",
              {{from, bytes * ranks, false}, {to, bytes * ranks, true}},
              [=](Transfers& transfers) {
                const auto at = [=](const void* start, int rank) {
                  return gpu::Contents(start) +
                         static_cast<size_t>(rank) * bytes;
                };
                ForPeers(comm, [&](int peer) {
                  Send(transfers, peer, at(from, peer), bytes);
                  Receive(transfers, peer, at(to, peer), bytes);
                });
                const int rank = comm->mail.rank();
                return Finish(
                    [=] { std::memmove(at(to, rank), at(from, rank), bytes); });
              }});
}

}  // extern "C"
