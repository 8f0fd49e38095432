// Kernels, identified by their registered names. Most compute nothing; those of
// ATen that fill, add and scale contiguous tensors and our own
// (comm_bench/cuda/kernels.cu) have host versions. The arguments of ATen's
// elementwise kernels are known, and therefore the memory that they access.
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/virtual_gpu/counters.h"
#include "tests/virtual_gpu/devices.h"
#include "tests/virtual_gpu/streams.h"

namespace gpu = rankwise::virtual_gpu;

namespace {

constexpr double kKernelSeconds = 5e-6;
constexpr double kBytesPerSecond = 2.5e12;
constexpr double kBytesOfValue = 4;

// Returns the number of input and output tensors of a functor of ATen's
// elementwise kernels: of a lambda, whose type names its parameters, or of a
// known struct. 0 if unknown.
size_t TensorsOf(const std::string& functor) {
  constexpr char kLambda[] = "{lambda(";
  const size_t lambda = functor.rfind(kLambda);
  if (lambda != std::string::npos && functor.back() == '}') {
    const auto begin =
        functor.begin() + static_cast<ptrdiff_t>(lambda + sizeof(kLambda) - 1);
    const auto end = std::find(begin, functor.end(), ')');
    if (begin == end) return 1;
    return 2 + static_cast<size_t>(std::count(begin, end, ','));
  }
  static constexpr std::pair<const char*, size_t> kStructs[] = {
      {"FillFunctor<", 1},     {"AUnaryFunctor<", 2},
      {"BUnaryFunctor<", 2},   {"CUDAFunctorOnSelf_add<", 2},
      {"CUDAFunctor_add<", 3}, {"BinaryFunctor<", 3},
  };
  for (const auto& [name, tensors] : kStructs) {
    if (functor.rfind(std::string("at::native::") + name, 0) == 0)
      return tensors;
  }
  return 0;
}

// Returns the type between the angle brackets after `before`; "" without one.
std::string TypeAfter(const std::string& before, const std::string& text) {
  const size_t at = text.find(before);
  if (at == std::string::npos) return "";
  const size_t begin = text.find('<', at) + 1;
  size_t end = begin;
  for (int depth = 0; end < text.size() && depth >= 0; ++end)
    depth += text[end] == '<' ? 1 : text[end] == '>' ? -1 : 0;
  return text.substr(begin, end - 1 - begin);
}

struct Kernel {
  std::string mangled = "kernel";
  // "at::native::vectorized_elementwise_kernel", for messages.
  std::string name = mangled;
  size_t strided_tensors = 0;  // of ATen's elementwise_kernel; 0 if unknown
};

Kernel KernelOf(const std::string& mangled) {
  int status = 0;
  char* const whole =
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  Kernel kernel = {mangled, status == 0 ? whole : mangled};
  std::free(whole);
  std::string& name = kernel.name;
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);
  if (name.rfind("at::native::elementwise_kernel<", 0) == 0)
    kernel.strided_tensors = TensorsOf(TypeAfter("::gpu_kernel_impl", name));
  const std::string unnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(unnamed)) != std::string::npos;)
    name.erase(at, unnamed.size());
  name.erase(std::min(name.find_first_of("<("), name.size()));
  return kernel;
}

struct Registry {
  std::mutex mutex;
  std::map<const void*, std::string> names;  // mangled, by host function
  std::map<const void*, Kernel> launched;    // live forever
};

Registry& TheRegistry() {
  static Registry& registry = *new Registry;
  return registry;
}

const Kernel& Find(const void* function) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto [found, is_new] = registry.launched.try_emplace(function);
  if (is_new && registry.names.count(function) > 0)
    found->second = KernelOf(registry.names[function]);
  return found->second;
}

bool Contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

template <typename Value>
Value Argument(void** arguments, int index) {
  Value value;
  std::memcpy(&value, arguments[index], sizeof(value));
  return value;
}

// An elementwise kernel of ATen over contiguous tensors: arguments are the
// number of elements, the functor, and the tensors' addresses, outputs first.
struct Elementwise {
  int64_t count = 0;
  std::vector<char*> tensors;
};

// Returns the addresses of the tensors, the output first, of an elementwise
// kernel over strided tensors: its arguments are the number of elements and a
// lambda with an OffsetCalculator (25 dimensions, each with a divisor of 12
// bytes and a stride of 4 for each tensor) and then the tensors' addresses.
std::vector<char*> ReadStrided(size_t tensors, void** arguments) {
  constexpr size_t kPointer = sizeof(char*);
  const size_t calculator = 4 + 25 * (12 + 4 * tensors);
  std::vector<char*> addresses(tensors);
  if (tensors == 0) return addresses;
  std::memcpy(addresses.data(),
              static_cast<char*>(arguments[1]) +
                  (calculator + kPointer - 1) / kPointer * kPointer,
              tensors * kPointer);
  return addresses;
}

Elementwise ReadElementwise(const std::string& name, void** arguments) {
  Elementwise kernel;
  if (!Contains(name, "vectorized_elementwise_kernel") &&
      !Contains(name, "unrolled_elementwise_kernel"))
    return kernel;
  constexpr char kTensors[] = "St5arrayIPcLm";
  const size_t at = name.rfind(kTensors);
  if (at == std::string::npos) return kernel;
  const int tensors = std::atoi(name.c_str() + at + sizeof(kTensors) - 1);
  kernel.count = Argument<int>(arguments, 0);
  kernel.tensors.resize(static_cast<size_t>(tensors));
  std::memcpy(kernel.tensors.data(), arguments[2],
              sizeof(char*) * kernel.tensors.size());
  return kernel;
}

// Returns the size of the type that follows `functor` in a mangled name; 0 for
// other types.
size_t BytesOfElement(const std::string& name, const std::string& functor) {
  const size_t at = name.find(functor);
  if (at == std::string::npos) return 0;
  const std::string type = name.substr(at + functor.size(), 3);
  switch (type[0]) {
    case 'b':
    case 'a':
    case 'h':
      return 1;
    case 's':
    case 't':
      return 2;
    case 'f':
    case 'i':
    case 'j':
      return 4;
    case 'd':
    case 'l':
    case 'm':
      return 8;
    case 'N':
      return 2;  // c10::Half, c10::BFloat16
    default:
      return 0;
  }
}

using Work = std::function<void()>;

template <typename Value>
Work FillWith(const Elementwise& kernel, const void* functor) {
  Value value;
  std::memcpy(&value, functor, sizeof(value));
  return [=] {
    auto* const to = reinterpret_cast<Value*>(gpu::Contents(kernel.tensors[0]));
    std::fill(to, to + kernel.count, value);
  };
}

Work Fill(const Elementwise& kernel, size_t bytes, const void* functor) {
  switch (bytes) {
    case 1:
      return FillWith<uint8_t>(kernel, functor);
    case 2:
      return FillWith<uint16_t>(kernel, functor);
    case 4:
      return FillWith<uint32_t>(kernel, functor);
    case 8:
      return FillWith<uint64_t>(kernel, functor);
    default:
      return {};
  }
}

template <typename Value, typename Function>
Work OnValues(const Elementwise& kernel, Function function) {
  return [=] {
    auto* const to = reinterpret_cast<Value*>(gpu::Contents(kernel.tensors[0]));
    const auto* const a =
        reinterpret_cast<Value*>(gpu::Contents(kernel.tensors[1]));
    const auto* const b =
        reinterpret_cast<Value*>(gpu::Contents(kernel.tensors.back()));
    for (int64_t i = 0; i < kernel.count; ++i) to[i] = function(a[i], b[i]);
  };
}

// Computes a + factor * b for tensors, or for a tensor and a number.
template <typename Value>
Work Add(const std::string& name, const Elementwise& kernel,
         const void* functor, const std::string& type) {
  Value number;
  std::memcpy(&number, functor, sizeof(number));
  if (Contains(name, ("CUDAFunctorOnSelf_addI" + type + "E").c_str()))
    return OnValues<Value>(kernel, [=](Value a, Value) { return a + number; });
  if (Contains(name, ("CUDAFunctor_addI" + type + "E").c_str()))
    return OnValues<Value>(kernel,
                           [=](Value a, Value b) { return a + number * b; });
  return {};
}

// Returns an empty function for kernels that compute nothing here.
Work HostVersion(const std::string& name, const Elementwise& kernel,
                 void** arguments) {
  if (Contains(name, "WithCast") && !Contains(name, "WithoutCast")) return {};
  const void* const functor = arguments[1];
  if (Contains(name, "FillFunctorI"))
    return Fill(kernel, BytesOfElement(name, "FillFunctorI"), functor);
  if (Work add = Add<float>(name, kernel, functor, "f")) return add;
  if (Work add = Add<double>(name, kernel, functor, "d")) return add;
  if (Work add = Add<int64_t>(name, kernel, functor, "l")) return add;
  if (Contains(name, "UnaryFunctorIfffNS0_15binary_internal10MulFunctor")) {
    float factor;  // after the empty functor
    std::memcpy(&factor, static_cast<const char*>(functor) + sizeof(float),
                sizeof(factor));
    return OnValues<float>(kernel, [=](float a, float) { return a * factor; });
  }
  return {};
}

// Handles our own kernels.
bool Ours(const std::string& name, void** arguments, gpu::Operation& launch) {
  if (!Contains(name, "rankwise5micro")) return false;
  if (Contains(name, "4Copy")) {
    const auto* const from = Argument<const char*>(arguments, 0);
    auto* const to = Argument<char*>(arguments, 1);
    const auto bytes = static_cast<size_t>(Argument<int64_t>(arguments, 2));
    launch.accesses = {{from, bytes, false}, {to, bytes, true}};
    launch.run = [=] {
      std::memmove(gpu::Contents(to), gpu::Contents(from), bytes);
    };
  } else if (Contains(name, "11SumToBlocks")) {
    const auto* const from = Argument<const char*>(arguments, 0);
    const auto count = Argument<int64_t>(arguments, 1);
    auto* const scratch = Argument<float*>(arguments, 2);
    const bool half_width = Contains(name, "SumToBlocksIt");
    launch.run = [=] {
      double sum = 0;
      const char* const values = gpu::Contents(from);
      for (int64_t i = 0; i < count; ++i) {
        uint32_t bits = 0;
        if (half_width) {
          std::memcpy(reinterpret_cast<char*>(&bits) + 2, values + 2 * i, 2);
        } else {
          std::memcpy(&bits, values + 4 * i, 4);
        }
        float value;
        std::memcpy(&value, &bits, 4);
        sum += static_cast<double>(value);
      }
      // The first block's sum; the others stay zero.
      *reinterpret_cast<float*>(gpu::Contents(scratch)) =
          static_cast<float>(sum);
    };
  } else if (Contains(name, "12SumBlockSums")) {
    const auto* const scratch = Argument<float*>(arguments, 0);
    auto* const sum = Argument<float*>(arguments, 2);
    launch.run = [=] {
      std::memcpy(gpu::Contents(sum), gpu::Contents(scratch), sizeof(float));
    };
  } else if (Contains(name, "4Hold")) {
    constexpr double kHertz = 1.98e9;
    launch.seconds =
        static_cast<double>(Argument<int64_t>(arguments, 0)) / kHertz;
  } else if (Contains(name, "4Tick")) {
    auto* const count = Argument<int32_t*>(arguments, 0);
    launch.run = [=] {
      if (count != nullptr) ++*reinterpret_cast<int32_t*>(gpu::Contents(count));
    };
  }
  return true;
}

cudaError_t LaunchKernel(const void* function, void** arguments,
                         cudaStream_t stream) {
  ++gpu::Counts().launches;
  const Kernel& found = Find(function);
  const std::string& name = found.mangled;
  if (gpu::DeviceOfStream(stream) != gpu::CurrentDevice())
    return cudaErrorInvalidResourceHandle;
  gpu::Operation launch;
  launch.name = found.name.c_str();
  launch.seconds = kKernelSeconds;
  if (!Ours(name, arguments, launch)) {
    const Elementwise kernel = ReadElementwise(name, arguments);
    // At least a byte per element, which suffices to detect conflicts.
    for (size_t i = 0; i < kernel.tensors.size(); ++i) {
      launch.accesses.push_back(
          {kernel.tensors[i], static_cast<size_t>(kernel.count), i == 0});
    }
    const auto strided = ReadStrided(found.strided_tensors, arguments);
    for (size_t i = 0; i < strided.size(); ++i)
      launch.accesses.push_back({strided[i], 1, i == 0});
    if (!kernel.tensors.empty())
      launch.run = HostVersion(name, kernel, arguments);
    launch.seconds += static_cast<double>(kernel.count) *
                      static_cast<double>(kernel.tensors.size()) *
                      kBytesOfValue / kBytesPerSecond;
  }
  return gpu::Enqueue(stream, std::move(launch));
}

struct CallConfiguration {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
thread_local CallConfiguration configuration;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int,
                       int) {}

void __cudaRegisterFunction(void**, const char* host_function, char*,
                            const char* name, int, void*, void*, void*, void*,
                            int*) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.names[host_function] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     void* stream) {
  configuration = {grid, block, shared_bytes,
                   static_cast<cudaStream_t>(stream)};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block,
                                       size_t* shared_bytes, void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void** arguments,
                             size_t, cudaStream_t stream) {
  return gpu::Fail(LaunchKernel(function, arguments, stream));
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3,
                               void** arguments, size_t, cudaStream_t stream) {
  return gpu::Fail(LaunchKernel(kernel, arguments, stream));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* launch,
                                const void* function, void** arguments) {
  return gpu::Fail(LaunchKernel(function, arguments, launch->stream));
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3,
                                        void** arguments, size_t,
                                        cudaStream_t stream) {
  return gpu::Fail(LaunchKernel(function, arguments, stream));
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                   const void*,
                                                                   int, size_t,
                                                                   unsigned) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          const void*, int,
                                                          size_t) {
  *blocks = 2;
  return cudaSuccess;
}

}  // extern "C"
