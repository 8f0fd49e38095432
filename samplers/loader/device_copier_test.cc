#include <ATen/ops/arange.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "parallel/device/fake_device_for_test.h"
#include "samplers/datasets/dataset.h"
#include "samplers/loader/data_loader.h"
#include "samplers/sampling/samplers.h"

namespace rankwise {
namespace {

const c10::Device kDevice = FakeDevice::At(0);

c10::Stream CurrentStream() {
  return c10::impl::VirtualGuardImpl(kDevice.type()).getStream(kDevice);
}

Batch SmallBatch() { return {at::arange(6), at::arange(2)}; }

class DeviceCopierTest : public testing::Test {
 protected:
  DeviceCopierTest() {
    FakeDevice::Reset();
    // A blocking copy or read of a batch makes the device run its work.
    FakeDevice::WhenHostWaits([] { FakeDevice::RunAll(kDevice, 1); });
  }
};

TEST_F(DeviceCopierTest, TheCurrentStreamWaitsForTheCopyAndTheHostDoesNot) {
  const DeviceCopier copier(kDevice, /*non_blocking=*/true);
  DeviceCopier::Copy copy = copier.Begin(SmallBatch());
  ASSERT_EQ(FakeDevice::copies().size(), 2u);
  const c10::Stream copying = FakeDevice::copies()[0];
  EXPECT_EQ(FakeDevice::copies()[1], copying);
  EXPECT_NE(copying, CurrentStream());
  EXPECT_FALSE(FakeDevice::Idle(copying));

  const Batch batch = copier.Use(std::move(copy));
  FakeDevice::Run(CurrentStream(), 1);
  EXPECT_FALSE(FakeDevice::Idle(CurrentStream()));
  FakeDevice::Run(copying, 2);
  FakeDevice::Run(CurrentStream(), 3);
  EXPECT_TRUE(FakeDevice::Idle(CurrentStream()));
  EXPECT_EQ(FakeDevice::waits(), 0);
  EXPECT_TRUE(batch.data.cpu().equal(SmallBatch().data));
  EXPECT_TRUE(batch.target.cpu().equal(SmallBatch().target));
}

TEST_F(DeviceCopierTest, MemoryIsKeptForTheStreamThatUsesIt) {
  const DeviceCopier copier(kDevice, /*non_blocking=*/true);
  DeviceCopier::Copy copy = copier.Begin(SmallBatch());
  const c10::StreamGuard guard(c10::impl::VirtualGuardImpl(kDevice.type())
                                   .getStreamFromGlobalPool(kDevice));
  copier.Use(std::move(copy));
  EXPECT_EQ(FakeDevice::recorded(),
            std::vector<c10::Stream>(2, CurrentStream()));
}

class DeviceLoaderTest : public DeviceCopierTest,
                         public testing::WithParamInterface<int> {
 protected:
  static constexpr int64_t kExamples = 50, kBatch = 8;

  DataLoader Loader(c10::Device device) {
    DataLoaderConfig config;
    config.batch_size = kBatch;
    config.workers = GetParam();
    config.device = device;
    return DataLoader(dataset_.get(), sampler_.get(), config);
  }

  const std::unique_ptr<Dataset> dataset_ =
      *OpenDataset({.train_size = kExamples}, Split::kTrain);
  const std::unique_ptr<DistributedSampler> sampler_ =
      *DistributedSampler::Create(kExamples, {.num_replicas = 1});
};

INSTANTIATE_TEST_SUITE_P(Workers, DeviceLoaderTest, testing::Values(0, 2));

std::vector<Batch> Drain(DataLoader& loader) {
  std::vector<Batch> batches;
  for (auto batch = loader.Next(); batch.ok() && batch->has_value();
       batch = loader.Next()) {
    batches.push_back({(*batch)->data.cpu(), (*batch)->target.cpu()});
  }
  return batches;
}

void ExpectEqual(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].data.equal(b[i].data)) << "batch " << i;
    EXPECT_TRUE(a[i].target.equal(b[i].target)) << "batch " << i;
  }
}

TEST_P(DeviceLoaderTest, GivesTheSameBatchesAsOnTheCpu) {
  DataLoader there = Loader(kDevice), here = Loader(at::kCPU);
  for (const int64_t epoch : {1, 2}) {
    there.StartEpoch(epoch);
    here.StartEpoch(epoch);
    ExpectEqual(Drain(there), Drain(here));
    EXPECT_EQ(there.state().position, here.batches_per_epoch());
    auto after = there.Next();
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_FALSE(after->has_value());
  }
}

TEST_P(DeviceLoaderTest, WhatWasCopiedAheadIsGoneWithItsEpoch) {
  DataLoader there = Loader(kDevice), here = Loader(at::kCPU);
  there.StartEpoch(1);
  ASSERT_TRUE(there.Next().ok());
  EXPECT_EQ(there.state().position, 1) << "the batch ahead was not handed out";
  for (const LoaderState state : {LoaderState{.epoch = 1, .position = 4},
                                  LoaderState{.epoch = 3, .position = 1}}) {
    ASSERT_TRUE(there.Resume(state).ok());
    ASSERT_TRUE(here.Resume(state).ok());
    ExpectEqual(Drain(there), Drain(here));
  }
}

TEST_F(DeviceCopierTest, TheNextCopyIsUnderWayWhenABatchIsHandedOut) {
  const auto dataset = *OpenDataset({.train_size = 24}, Split::kTrain);
  const auto sampler = *DistributedSampler::Create(24, {.num_replicas = 1});
  DataLoaderConfig config;
  config.batch_size = 8;
  config.workers = 0;
  config.device = kDevice;
  DataLoader loader(dataset.get(), sampler.get(), config);
  loader.StartEpoch(1);
  constexpr size_t kTensors = 2;
  for (const size_t begun : {2, 3, 3}) {
    ASSERT_TRUE(loader.Next().ok());
    EXPECT_EQ(FakeDevice::copies().size(), begun * kTensors);
  }
}

class Failing final : public Dataset {
 public:
  Failing() : Dataset({.name = "failing", .size = 24, .example_shape = {1}}) {}
  Batch Gather(absl::Span<const int64_t> indices) const override {
    TORCH_CHECK(++calls_ != 3, "cannot be read");
    const at::Tensor rows = at::arange(static_cast<int64_t>(indices.size()));
    return {rows, rows};
  }

 private:
  mutable int calls_ = 0;
};

TEST_F(DeviceCopierTest, AnErrorOfTheBatchAheadComesAtItsPlace) {
  const Failing dataset;
  const auto sampler = *DistributedSampler::Create(24, {.num_replicas = 1});
  DataLoaderConfig config;
  config.batch_size = 8;
  config.workers = 0;
  config.device = kDevice;
  DataLoader loader(&dataset, sampler.get(), config);
  loader.StartEpoch(1);
  EXPECT_TRUE(loader.Next().ok());
  EXPECT_TRUE(loader.Next().ok());
  EXPECT_EQ(loader.state().position, 2);
  for (int i = 0; i < 2; ++i) {
    const auto batch = loader.Next();
    EXPECT_EQ(batch.status().code(), absl::StatusCode::kInternal);
    EXPECT_NE(std::string(batch.status().message()).find("batch 2"),
              std::string::npos)
        << batch.status();
  }
}

}  // namespace
}  // namespace rankwise
