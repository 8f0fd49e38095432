// Steps in the steady state allocate no tensor memory from the heap, not even
// in the loader: it comes from blocks that earlier steps freed. Only oneDNN
// allocates blocks of over 4 KiB in every step, for its descriptors and its
// GEMMs' buffers; the callers' names identify them.
#include <execinfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stddef.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/debugging/symbolize.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/config.h"
#include "trainers/loop/training_run.h"
#include "trainers/loop/worker.h"
#include "trainers/memory/measured_memory.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define RANKWISE_COUNTS_ALLOCATIONS 1
#endif

namespace rankwise {
namespace {

constexpr size_t kLargestSmall = 4 << 10;  // bytes
constexpr int kMostFrames = 32;

struct Block {
  size_t bytes = 0;
  std::array<void*, kMostFrames> callers = {};  // innermost first
  int num_callers = 0;
};

std::atomic<bool> counts = false;
std::atomic<size_t> num_blocks = 0;
std::array<Block, 4096> blocks;  // the first ones

[[maybe_unused]] void Count(size_t bytes, void* caller) {
  // Unwinding may allocate.
  thread_local bool within = false;
  if (!counts || bytes <= kLargestSmall || within) return;
  within = true;
  const size_t place = num_blocks++;
  if (place < blocks.size()) {
    Block& block = blocks[place];
    block.bytes = bytes;
    std::array<void*, kMostFrames> frames;
    const int num_frames = backtrace(frames.data(), kMostFrames);
    // Without this function and the replacement of glibc's function.
    void** const end = frames.data() + num_frames;
    void** const begin = std::find(frames.data(), end, caller);
    block.num_callers = static_cast<int>(
        std::copy(begin, end, block.callers.data()) - block.callers.data());
  }
  within = false;
}

}  // namespace
}  // namespace rankwise

// Replace glibc's functions, for the libraries as well.
#ifdef RANKWISE_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) noexcept {
  rankwise::Count(bytes, __builtin_return_address(0));
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  rankwise::Count(count * bytes, __builtin_return_address(0));
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, size_t bytes) noexcept {
  rankwise::Count(bytes, __builtin_return_address(0));
  return __libc_realloc(block, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  rankwise::Count(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  rankwise::Count(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  rankwise::Count(bytes, __builtin_return_address(0));
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
}
#endif

namespace rankwise {
namespace {

using ::testing::HasSubstr;

// Returns "" if the name is unknown.
std::string NameOf(void* return_address) {
  // Address of the call, which may be its function's last instruction.
  const char* const call = static_cast<char*>(return_address) - 1;
  char name[1024];
  return absl::Symbolize(call, name, sizeof(name)) ? name : "";
}

// Returns the innermost function outside operator new and the standard library,
// which identifies the allocating code.
std::string TakerOf(const Block& block) {
  for (int i = 0; i < block.num_callers; ++i) {
    const std::string name = NameOf(block.callers[i]);
    if (!name.empty() && !absl::StartsWith(name, "operator new") &&
        !absl::StartsWith(name, "std::") &&
        !absl::StartsWith(name, "__gnu_cxx::"))
      return name;
  }
  return "";
}

bool IsOfOneDnn(const std::string& taker) {
  return absl::StartsWith(taker, "dnnl::");
}

std::string CallersOf(const Block& block) {
  std::string text;
  for (int i = 0; i < block.num_callers; ++i)
    absl::StrAppend(&text, "\n  ", NameOf(block.callers[i]));
  return text;
}

// The loss is printed after these steps only.
constexpr int64_t kLogEvery = 20;
constexpr int64_t kFirst = kLogEvery + 1, kLast = 2 * kLogEvery - 1;
constexpr double kSteps = kLast - kFirst;

TrainConfig Config(Precision precision) {
  TrainConfig config;
  config.model.name = "simple_cnn";
  config.precision = precision;
  config.data.dataset = "synthetic";
  config.data.batch_size = 16;
  config.data.train_size = 2 * kLogEvery * config.data.batch_size;
  config.optimizer.name = "adam";
  config.optimizer.learning_rate = 0.001;
  config.epochs = 1;
  config.evaluate = false;
  config.output.log_every = kLogEvery;
  config.output.show_progress = false;
  return config;
}

// Trains like trainers/single.cc; counts between the begins of kFirst and
// kLast.
absl::Status Train(const TrainConfig& config) {
  Worker worker;
  worker.trainer = "single";
  ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                   TrainingRun::Create(config, worker));
  RETURN_IF_ERROR(run->Start(TrainableParameters(run->model())));
  return run->Train([&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    counts = input.step >= kFirst && input.step < kLast;
    input.clock.Begin(Phase::kForward);
    const torch::Tensor loss =
        run->objective().LossShare(input.micro_batches[0], input.micro_batches);
    input.clock.Begin(Phase::kBackward);
    loss.backward();
    input.clock.Begin(Phase::kOptimizer);
    run->optimizer().Step(input.learning_rate);
    run->optimizer().ZeroGrad();
    return StepOutcome{.loss = loss.detach()};
  });
}

class SteadyStepTest : public testing::TestWithParam<Precision> {};

TEST_P(SteadyStepTest, AllocatesNothingLarge) {
#ifndef RANKWISE_COUNTS_ALLOCATIONS
  GTEST_SKIP() << "allocations are counted with glibc's malloc only";
#endif
  KeepFreedMemory();
  num_blocks = 0;
  counts = true;
  // Not inlined, like the libraries' calls.
  void* (*volatile allocate)(size_t) = std::malloc;
  void* volatile block = allocate(kLargestSmall + 1);
  counts = false;
  std::free(block);
  ASSERT_EQ(num_blocks, 1) << "large blocks are counted";
  EXPECT_THAT(TakerOf(blocks[0]), HasSubstr("AllocatesNothingLarge"));

  num_blocks = 0;
  const absl::Status trained = Train(Config(GetParam()));
  counts = false;
  ASSERT_TRUE(trained.ok()) << trained;
  ASSERT_LE(num_blocks, blocks.size());
  size_t of_one_dnn = 0, bytes_of_one_dnn = 0;
  for (size_t i = 0; i < num_blocks; ++i) {
    const std::string taker = TakerOf(blocks[i]);
    EXPECT_TRUE(IsOfOneDnn(taker))
        << blocks[i].bytes << " bytes for " << taker << CallersOf(blocks[i]);
    if (!IsOfOneDnn(taker)) continue;
    ++of_one_dnn;
    bytes_of_one_dnn += blocks[i].bytes;
  }
  std::printf("oneDNN's: %.1f blocks of over 4 KiB a step, %.1f KB\n",
              static_cast<double>(of_one_dnn) / kSteps,
              1e-3 * static_cast<double>(bytes_of_one_dnn) / kSteps);
}

INSTANTIATE_TEST_SUITE_P(Precisions, SteadyStepTest,
                         testing::Values(Precision::kFp32, Precision::kBf16),
                         [](const auto& info) {
                           return std::string(PrecisionName(info.param));
                         });

}  // namespace
}  // namespace rankwise
