#include "samplers/loader/data_loader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "samplers/datasets/dataset.h"
#include "samplers/sampling/samplers.h"

namespace rankwise {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAreArray;

at::Tensor RandomImages(at::IntArrayRef shape) {
  return at::randint(256, shape, at::detail::createCPUGenerator(1),
                     at::TensorOptions(at::kByte));
}

// torchvision's ToTensor and Normalize, operator by operator.
at::Tensor Torchvision(const at::Tensor& images) {
  return images.to(at::kFloat).div(255).sub_(0.5).div_(0.5);
}

// Returns every pixel value in every channel.
at::Tensor AllValues() {
  return at::arange(256, at::kByte).view({1, 1, 16, 16}).repeat({2, 3, 1, 1});
}

TEST(TransformsTest, IsBitEqualToTorchvisionAndChannelsLast) {
  for (const at::Tensor& images : {AllValues(), RandomImages({5, 3, 32, 32})}) {
    const at::Tensor result = NormalizeImages(images);
    EXPECT_TRUE(result.equal(Torchvision(images)));
    EXPECT_TRUE(result.is_contiguous(at::MemoryFormat::ChannelsLast));
  }
}

TEST(TransformsTest, TakesAnyNumberOfChannels) {
  for (const int64_t channels : {1, 2, 4}) {
    const at::Tensor images = RandomImages({3, channels, 5, 7});
    EXPECT_TRUE(NormalizeImages(images).equal(Torchvision(images)));
  }
}

TEST(TransformsTest, TakesAnEmptyBatch) {
  EXPECT_EQ(NormalizeImages(at::empty({0, 3, 8, 8}, at::kByte)).sizes(),
            at::IntArrayRef({0, 3, 8, 8}));
}

TEST(TransformsTest, ThrowsOnOtherTensors) {
  EXPECT_THROW(NormalizeImages(at::empty({2, 3, 4, 4}, at::kFloat)),
               c10::Error);
  EXPECT_THROW(NormalizeImages(at::empty({3, 4, 4}, at::kByte)), c10::Error);
  EXPECT_THROW(
      NormalizeImages(at::empty({2, 3, 4, 4}, at::kByte).transpose(2, 3)),
      c10::Error);
}

std::unique_ptr<Dataset> Images(int64_t size) {
  return *OpenDataset({.train_size = size}, Split::kTrain);
}

std::unique_ptr<DistributedSampler> Shuffled(int64_t size) {
  return *DistributedSampler::Create(size, {.num_replicas = 1});
}

std::unique_ptr<DistributedSampler> InOrder(int64_t size) {
  return *DistributedSampler::Create(size, {.shuffle = false});
}

// Returns the remaining batches of the epoch.
std::vector<Batch> Drain(DataLoader& loader) {
  std::vector<Batch> batches;
  while (true) {
    auto batch = loader.Next();
    if (!batch.ok()) {
      ADD_FAILURE() << batch.status();
      return batches;
    }
    if (!batch->has_value()) return batches;
    batches.push_back(**batch);
  }
}

void ExpectEqual(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].data.equal(b[i].data)) << "batch " << i;
    EXPECT_TRUE(a[i].target.equal(b[i].target)) << "batch " << i;
  }
}

// A slow dataset whose examples from `bad` on cannot be read.
class Failing final : public Dataset {
 public:
  explicit Failing(int64_t bad)
      : Dataset({.name = "failing", .size = 100, .example_shape = {1}}),
        bad_(bad) {}
  Batch Gather(absl::Span<const int64_t> indices) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const int64_t index : indices) {
      TORCH_CHECK(index < bad_, "example ", index, " cannot be read");
    }
    const int64_t count = static_cast<int64_t>(indices.size());
    return {at::empty({count, 1}), at::empty({count, 1})};
  }

 private:
  const int64_t bad_;
};

TEST(DataLoaderTest, GivesTheSamplersOrderTransformed) {
  const auto dataset = Images(50);
  const auto sampler = Shuffled(50);
  DataLoader loader(dataset.get(), sampler.get(), {.batch_size = 8});
  loader.StartEpoch(3);
  const std::vector<Batch> batches = Drain(loader);
  ASSERT_EQ(batches.size(), 7u);
  EXPECT_EQ(loader.batches_per_epoch(), 7);
  EXPECT_EQ(batches[6].data.size(0), 2);

  const auto reference = Shuffled(50);
  reference->set_epoch(3);
  const Batch all = dataset->Gather(reference->Indices());
  const at::Tensor scaled = all.data.to(at::kFloat).div(255).sub(0.5).div(0.5);
  EXPECT_TRUE(batches[2].data.equal(scaled.slice(0, 16, 24)));
  EXPECT_TRUE(batches[6].target.equal(all.target.slice(0, 48, 50)));
}

TEST(DataLoaderTest, BatchesDoNotDependOnTheWorkers) {
  const auto dataset = Images(200);
  const auto sampler = Shuffled(200);
  std::vector<std::vector<Batch>> runs;
  for (const int workers : {0, 1, 2, 4}) {
    for (const int prefetch : {1, 3}) {
      DataLoader loader(
          dataset.get(), sampler.get(),
          {.batch_size = 16, .workers = workers, .prefetch_batches = prefetch});
      loader.StartEpoch(1);
      runs.push_back(Drain(loader));
      ExpectEqual(runs.front(), runs.back());
    }
  }
}

TEST(DataLoaderTest, EpochsDifferAndComeBack) {
  const auto dataset = Images(64);
  const auto sampler = Shuffled(64);
  DataLoader loader(dataset.get(), sampler.get(), {.batch_size = 32});
  loader.StartEpoch(1);
  const std::vector<Batch> first = Drain(loader);
  loader.StartEpoch(2);
  const std::vector<Batch> second = Drain(loader);
  EXPECT_FALSE(first[0].target.equal(second[0].target));
  loader.StartEpoch(1);
  ExpectEqual(Drain(loader), first);
}

TEST(DataLoaderTest, ResumesAtAnyPosition) {
  const auto dataset = Images(100);
  const auto sampler = Shuffled(100);
  DataLoader whole(dataset.get(), sampler.get(), {.batch_size = 16});
  whole.StartEpoch(5);
  const std::vector<Batch> expected = Drain(whole);
  EXPECT_EQ(whole.state().position, 7);
  for (int64_t position = 0; position <= 7; ++position) {
    const auto other_sampler = Shuffled(100);
    DataLoader loader(dataset.get(), other_sampler.get(),
                      {.batch_size = 16, .workers = 2});
    const absl::Status status =
        loader.Resume({.epoch = 5, .position = position});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(loader.state().epoch, 5);
    EXPECT_EQ(loader.state().position, position);
    ExpectEqual(Drain(loader), {expected.begin() + position, expected.end()});
  }
}

TEST(DataLoaderTest, TheStateCountsWhatWasHandedOut) {
  const auto dataset = Images(100);
  const auto sampler = Shuffled(100);
  DataLoader loader(dataset.get(), sampler.get(),
                    {.batch_size = 10, .workers = 2, .prefetch_batches = 8});
  loader.StartEpoch(2);
  ASSERT_TRUE(loader.Next().ok());
  ASSERT_TRUE(loader.Next().ok());
  EXPECT_EQ(loader.state().epoch, 2);
  EXPECT_EQ(loader.state().position, 2);  // without prefetched batches
  loader.StartEpoch(3);
  EXPECT_EQ(loader.state().position, 0);
}

TEST(DataLoaderTest, GivesNothingBeforeTheStartAndOfAnEmptyDataset) {
  const auto dataset = Images(0);
  const auto sampler = Shuffled(0);
  DataLoader loader(dataset.get(), sampler.get(), {});
  EXPECT_TRUE(Drain(loader).empty());
  loader.StartEpoch(0);
  EXPECT_TRUE(Drain(loader).empty());
  EXPECT_EQ(loader.batches_per_epoch(), 0);
}

TEST(DataLoaderTest, FeaturesPassUnchanged) {
  const std::unique_ptr<Dataset> dataset =
      *OpenDataset({.name = "linear", .train_size = 20}, Split::kTrain);
  const auto sampler = InOrder(20);
  DataLoader loader(dataset.get(), sampler.get(), {.batch_size = 20});
  loader.StartEpoch(0);
  std::vector<int64_t> indices(20);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  ExpectEqual(Drain(loader), {dataset->Gather(indices)});
}

TEST(DataLoaderTest, LaysImagesOutChannelsLast) {
  const auto dataset = Images(4);
  const auto sampler = InOrder(4);
  DataLoader loader(dataset.get(), sampler.get(), {});
  loader.StartEpoch(0);
  EXPECT_TRUE(
      Drain(loader)[0].data.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(DataLoaderTest, SaysWhatTheDatasetThrew) {
  const Failing dataset(20);
  const auto sampler = InOrder(100);
  for (const int workers : {0, 2}) {
    DataLoader loader(&dataset, sampler.get(),
                      {.batch_size = 10, .workers = workers});
    loader.StartEpoch(0);
    EXPECT_TRUE(loader.Next().ok());
    EXPECT_TRUE(loader.Next().ok());
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = loader.Next().status();
      EXPECT_TRUE(absl::IsInternal(status));
      EXPECT_EQ(std::string(status.message()),
                "making batch 2 failed: example 20 cannot be read");
    }
    EXPECT_EQ(loader.state().position, 2);
  }
}

// Writes 100 windows of four tokens. Each token is the number of its window,
// but 200 in window `bad`. Returns the path.
std::string TokenFile(const std::string& name, int64_t bad) {
  const std::string path = testing::TempDir() + name;
  std::ofstream file(path, std::ios::binary);
  for (uint16_t window = 0; window < 100; ++window) {
    const uint16_t id = window == bad ? uint16_t{200} : window;
    for (int i = 0; i < 4; ++i)
      file.write(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  return path;
}

std::unique_ptr<Dataset> TokenWindows(const std::string& path) {
  return *OpenDataset({.name = "tokens",
                       .data_dir = path,
                       .sequence_length = 3,
                       .num_classes = 100},
                      Split::kTrain);
}

// Returns the first token of every example.
std::vector<int64_t> FirstTokens(const std::vector<Batch>& batches) {
  std::vector<int64_t> tokens;
  for (const Batch& batch : batches) {
    for (int64_t i = 0; i < batch.data.size(0); ++i)
      tokens.push_back(batch.data.const_data_ptr<int64_t>()[3 * i]);
  }
  return tokens;
}

TEST(DataLoaderTest, GivesEveryWindowOfATokenFileOnceAlsoWhenResumed) {
  const auto dataset = TokenWindows(TokenFile("tokens.bin", /*bad=*/-1));
  ASSERT_EQ(dataset->size(), 90);
  const auto sampler = Shuffled(90);
  DataLoader loader(dataset.get(), sampler.get(),
                    {.batch_size = 16, .workers = 2});
  loader.StartEpoch(3);
  const std::vector<int64_t> whole = FirstTokens(Drain(loader));
  std::vector<int64_t> windows(90);
  std::iota(windows.begin(), windows.end(), int64_t{0});
  EXPECT_THAT(whole, UnorderedElementsAreArray(windows));
  EXPECT_NE(whole, windows);  // shuffled

  ASSERT_TRUE(loader.Resume({.epoch = 3, .position = 2}).ok());
  EXPECT_THAT(FirstTokens(Drain(loader)),
              ElementsAreArray(whole.begin() + 32, whole.end()));
}

TEST(DataLoaderTest, AnIdBeyondTheVocabularyEndsTheEpochWithItsPlace) {
  const std::string path = TokenFile("beyond.bin", /*bad=*/25);
  const auto dataset = TokenWindows(path);
  const auto sampler = InOrder(90);
  for (const int workers : {0, 1, 2}) {
    DataLoader loader(dataset.get(), sampler.get(),
                      {.batch_size = 10, .workers = workers});
    loader.StartEpoch(0);
    EXPECT_TRUE(loader.Next().ok());
    EXPECT_TRUE(loader.Next().ok());
    EXPECT_THAT(std::string(loader.Next().status().message()),
                StartsWith("making batch 2 failed: tokens: " + path +
                           " has the id 200 at position 100 (byte offset 200), "
                           "but the model's vocabulary is 0 .. 99; "));
  }
}

TEST(DataLoaderTest, RefusesWhatMakesNoSense) {
  const auto dataset = Images(4);
  const auto sampler = Shuffled(4);
  for (const DataLoaderConfig& config :
       {DataLoaderConfig{.batch_size = -4}, DataLoaderConfig{.workers = -1},
        DataLoaderConfig{.prefetch_batches = 0}}) {
    EXPECT_THROW(DataLoader(dataset.get(), sampler.get(), config), c10::Error);
  }
}

TEST(DataLoaderTest, RefusesToResumeBeyondTheEpoch) {
  const auto dataset = Images(100);
  const auto sampler = Shuffled(100);
  DataLoader loader(dataset.get(), sampler.get(), {.batch_size = 16});
  for (const int64_t position : {8, -1}) {
    const absl::Status status =
        loader.Resume({.epoch = 1, .position = position});
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("batch " + std::to_string(position) +
                          " of epoch 1, which has 7 batches"));
  }
}

}  // namespace
}  // namespace rankwise
