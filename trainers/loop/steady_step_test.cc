// A step like the ones before it takes no memory from the heap for tensors, the
// loader's included: they come from blocks that earlier steps freed. oneDNN
// allocates in every step, but less at once: 6.6 KB for the descriptor of a
// convolution's backward, 74 KB per thread for its fp32 GEMMs.
#include <gtest/gtest.h>
#include <stddef.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/config.h"
#include "trainers/loop/training_run.h"
#include "trainers/loop/worker.h"
#include "trainers/observe/memory.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define RANKWISE_COUNTS_ALLOCATIONS 1
#endif

namespace rankwise {
namespace {

constexpr size_t kLargestSmall = 128 << 10;  // bytes

std::atomic<bool> counts = false;
std::atomic<int64_t> large_blocks = 0;

[[maybe_unused]] void Count(size_t bytes) {
  if (counts && bytes > kLargestSmall) ++large_blocks;
}

}  // namespace
}  // namespace rankwise

// In place of glibc's, for the libraries as well.
#ifdef RANKWISE_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) noexcept {
  rankwise::Count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  rankwise::Count(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, size_t bytes) noexcept {
  rankwise::Count(bytes);
  return __libc_realloc(block, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  rankwise::Count(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return memalign(alignment, bytes);
}
int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  *block = memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
}
#endif

namespace rankwise {
namespace {

// The loss is printed after these steps and not between.
constexpr int64_t kLogEvery = 20;
constexpr int64_t kFirst = kLogEvery + 1, kLast = 2 * kLogEvery - 1;

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

// As trainers/single.cc; counts from the begin of step kFirst to that of kLast.
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
  counts = true;
  large_blocks = 0;
  void* volatile block = std::malloc(kLargestSmall + 1);
  std::free(block);
  EXPECT_EQ(large_blocks, 1) << "large blocks are counted";
  counts = false;
  large_blocks = 0;
  const absl::Status trained = Train(Config(GetParam()));
  counts = false;
  ASSERT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(large_blocks, 0) << "in " << kLast - kFirst << " steps";
}

INSTANTIATE_TEST_SUITE_P(Precisions, SteadyStepTest,
                         testing::Values(Precision::kFp32, Precision::kBf16),
                         [](const auto& info) {
                           return std::string(PrecisionName(info.param));
                         });

}  // namespace
}  // namespace rankwise
