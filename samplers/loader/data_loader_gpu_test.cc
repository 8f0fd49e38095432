#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "parallel/device/require_gpus.h"
#include "samplers/datasets/dataset.h"
#include "samplers/loader/data_loader.h"
#include "samplers/sampling/samplers.h"

namespace rankwise {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);
constexpr int64_t kExamples = 1000, kBatch = 64;

struct Loaders {
  explicit Loaders(int workers) {
    DataLoaderConfig config;
    config.batch_size = kBatch;
    config.workers = workers;
    here = std::make_unique<DataLoader>(dataset.get(), sampler.get(), config);
    config.device = kGpu;
    there = std::make_unique<DataLoader>(dataset.get(), other_sampler.get(),
                                         config);
  }

  const std::unique_ptr<Dataset> dataset =
      *OpenDataset({.train_size = kExamples}, Split::kTrain);
  const std::unique_ptr<DistributedSampler> sampler =
      *DistributedSampler::Create(kExamples, {.num_replicas = 1});
  const std::unique_ptr<DistributedSampler> other_sampler =
      *DistributedSampler::Create(kExamples, {.num_replicas = 1});
  std::unique_ptr<DataLoader> here, there;
};

class DataLoaderGpuTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  }
};

INSTANTIATE_TEST_SUITE_P(Workers, DataLoaderGpuTest, testing::Values(0, 2));

// Compares only at the end of the epoch, to detect a batch whose memory was
// reused by a later one or that was used before it was copied.
void ExpectEqualToTheEnd(Loaders& loaders) {
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  while (true) {
    auto there = loaders.there->Next();
    auto here = loaders.here->Next();
    ASSERT_TRUE(there.ok()) << there.status();
    ASSERT_TRUE(here.ok()) << here.status();
    ASSERT_EQ(there->has_value(), here->has_value());
    if (!there->has_value()) break;
    EXPECT_EQ((*there)->data.device(), kGpu);
    EXPECT_EQ((*there)->data.strides(), (*here)->data.strides());
    copies.emplace_back((*there)->data.clone(), (*here)->data.clone());
    copies.emplace_back((*there)->target.clone(), (*here)->target.clone());
  }
  for (const auto& [there, here] : copies) EXPECT_TRUE(there.cpu().equal(here));
}

TEST_P(DataLoaderGpuTest, GivesTheSameBatchesAsOnTheCpu) {
  Loaders loaders(GetParam());
  for (const int64_t epoch : {1, 2, 3}) {
    loaders.there->StartEpoch(epoch);
    loaders.here->StartEpoch(epoch);
    ExpectEqualToTheEnd(loaders);
  }
}

TEST_P(DataLoaderGpuTest, ResumesWithWhatTheEpochWouldHaveGiven) {
  Loaders loaders(GetParam());
  loaders.there->StartEpoch(1);
  ASSERT_TRUE(loaders.there->Next().ok());
  for (const LoaderState state : {LoaderState{.epoch = 1, .position = 7},
                                  LoaderState{.epoch = 4, .position = 0}}) {
    ASSERT_TRUE(loaders.there->Resume(state).ok());
    ASSERT_TRUE(loaders.here->Resume(state).ok());
    ExpectEqualToTheEnd(loaders);
  }
}

TEST_P(DataLoaderGpuTest, SuitsAnyCurrentStream) {
  Loaders loaders(GetParam());
  loaders.there->StartEpoch(1);
  loaders.here->StartEpoch(1);
  const c10::StreamGuard guard(
      c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(kGpu));
  ExpectEqualToTheEnd(loaders);
}

}  // namespace
}  // namespace rankwise
