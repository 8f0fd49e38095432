#include "trainers/loop/step.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <set>
#include <stdexcept>
#include <string>

namespace rankwise {
namespace {

TEST(DropoutSeedTest, EveryPlaceHasItsOwn) {
  std::set<uint64_t> seeds;
  for (uint64_t run = 0; run < 3; ++run) {
    for (int64_t step = 1; step <= 20; ++step) {
      for (int replica = 0; replica < 4; ++replica) {
        for (int64_t micro_batch = 0; micro_batch < 8; ++micro_batch)
          seeds.insert(DropoutSeed(run, step, replica, micro_batch));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 3u * 20 * 4 * 8);
}

TEST(DropoutSeedTest, DoesNotChangeFromRunToRun) {
  EXPECT_EQ(DropoutSeed(5, 1, 2, 3), 0xc8bc61fa31c4372fu);
  static_assert(sizeof(DropoutSeed(0, 0, 0, 0)) == 8);
}

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

TEST(FailureTest, OutOfMemoryNamesTheFlagsThatHelp) {
  const Worker worker;
  const absl::Status bad_alloc =
      ExplainTrainingFailure("step 3", std::bad_alloc(), worker);
  EXPECT_EQ(bad_alloc.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(bad_alloc),
              AllOf(HasSubstr("step 3 ran out of memory on cpu"),
                    HasSubstr("--batch_size")));

  const std::runtime_error allocator(
      "DefaultCPUAllocator: can't allocate memory: you tried to allocate 123 "
      "bytes.");
  const absl::Status status =
      ExplainTrainingFailure("step 4", allocator, worker);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(status), HasSubstr("you tried to allocate 123 bytes"));
}

TEST(FailureTest, AGpuWithoutMemoryIsKnownByItsType) {
  const c10::SourceLocation here = {__func__, __FILE__, __LINE__};
  const c10::OutOfMemoryError gpu(here, "no more: you asked for 20 GiB");
  EXPECT_EQ(ExplainTrainingFailure("step 3", gpu, Worker{}).code(),
            absl::StatusCode::kResourceExhausted);
  const std::runtime_error words("see 'CUDA out of memory' in the manual");
  EXPECT_EQ(ExplainTrainingFailure("step 3", words, Worker{}).code(),
            absl::StatusCode::kInternal);
}

TEST(FailureTest, ALoaderWithoutMemoryNamesTheFlagsThatHelp) {
  const absl::Status loader = absl::InternalError(
      "batch 0: DefaultCPUAllocator: can't allocate memory: 7 bytes");
  const absl::Status status = ExplainLoadingFailure(loader, Worker{});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr("loading data ran out of memory"),
                    HasSubstr("--batch_size")));
  EXPECT_EQ(ExplainLoadingFailure(absl::DataLossError("byte 9"), Worker{}),
            absl::DataLossError("byte 9"));
}

TEST(FailureTest, OtherErrorsKeepTheirMessageWithoutAStack) {
  try {
    TORCH_CHECK(false, "sizes do not match");
  } catch (const std::exception& error) {
    const absl::Status status =
        ExplainTrainingFailure("step 9", error, Worker{});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(MessageOf(status),
                AllOf(HasSubstr("step 9 failed: sizes do not match"),
                      Not(HasSubstr("frame #"))));
  }
}

}  // namespace

}  // namespace rankwise
