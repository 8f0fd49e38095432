#include "samplers/sampling/samplers.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Captures this thread's c10 warnings instead of printing them.
class CapturedWarnings {
 public:
  const std::vector<std::string>& messages() const { return handler_.messages; }

 private:
  struct Handler : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      messages.push_back(warning.msg());
    }
    std::vector<std::string> messages;
  };

  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

TEST(PermutationTest, EqualsPython) {
  // torch.randperm(10, generator=torch.Generator().manual_seed(0)), twice.
  at::Generator generator = SeededGenerator(0);
  EXPECT_THAT(RandomPermutation(10, generator),
              ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(RandomPermutation(10, generator),
              ElementsAre(3, 9, 4, 2, 7, 8, 6, 0, 5, 1));
}

TEST(PermutationTest, OfNothingAndOfOne) {
  EXPECT_THAT(RandomPermutation(0, SeededGenerator(3)), IsEmpty());
  EXPECT_THAT(RandomPermutation(1, SeededGenerator(3)), ElementsAre(0));
}

TEST(PermutationTest, TakesSeedsBeyondSixtyThreeBits) {
  EXPECT_EQ(RandomPermutation(20, SeededGenerator(~uint64_t{0})),
            RandomPermutation(20, SeededGenerator(~uint64_t{0})));
}

using Config = DistributedSamplerConfig;
using Mode = DistributedSamplerConfig::Mode;

std::vector<int64_t> IndicesOf(int64_t size, const Config& config,
                               int64_t epoch = 0) {
  auto sampler = DistributedSampler::Create(size, config);
  if (!sampler.ok()) {
    ADD_FAILURE() << sampler.status();
    return {};
  }
  (*sampler)->set_epoch(epoch);
  std::vector<int64_t> indices = (*sampler)->Indices();
  EXPECT_EQ((*sampler)->size(), static_cast<int64_t>(indices.size()));
  return indices;
}

// Returns the indices of all ranks, one vector per rank.
std::vector<std::vector<int64_t>> AllRanks(int64_t size, Config config,
                                           int64_t epoch = 0) {
  std::vector<std::vector<int64_t>> ranks;
  for (config.rank = 0; config.rank < config.num_replicas; ++config.rank) {
    ranks.push_back(IndicesOf(size, config, epoch));
  }
  return ranks;
}

// Returns the ranks' indices in dealing order: the r-th of every rank before
// the (r + 1)-th of any.
std::vector<int64_t> Interleaved(
    const std::vector<std::vector<int64_t>>& ranks) {
  std::vector<int64_t> order;
  for (size_t place = 0; place < ranks[0].size(); ++place) {
    for (const std::vector<int64_t>& rank : ranks) {
      if (place < rank.size()) order.push_back(rank[place]);
    }
  }
  return order;
}

bool IsPermutation(std::vector<int64_t> indices) {
  std::sort(indices.begin(), indices.end());
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Calls `check(size, world_size, shuffle)` for sizes 1 .. 257 and world sizes 1
// .. 9.
template <typename Check>
void Sweep(Check check) {
  for (int64_t size = 1; size <= 257; ++size) {
    for (int64_t world_size = 1; world_size <= 9; ++world_size) {
      for (const bool shuffle : {false, true}) {
        check(size, world_size, shuffle);
        if (testing::Test::HasFailure()) {
          FAIL() << "at size " << size << ", world size " << world_size
                 << ", shuffle " << shuffle;
        }
      }
    }
  }
}

// 64-bit FNV-1a over little-endian 64-bit integers, as in goldens/generate.py.
uint64_t Digest(const std::vector<int64_t>& numbers, uint64_t state) {
  for (const int64_t number : numbers) {
    for (int byte = 0; byte < 8; ++byte) {
      state ^= static_cast<uint64_t>(number) >> (8 * byte) & 0xff;
      state *= 0x100000001b3u;
    }
  }
  return state;
}

uint64_t SweepDigest(int64_t size) {
  const std::vector<std::pair<uint64_t, int64_t>> seeds = {
      {0, 0}, {0, 1}, {1234, 7}};
  const bool small = size < 1000;
  uint64_t state = 0xcbf29ce484222325u;
  for (const int64_t world_size :
       small ? std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}
             : std::vector<int64_t>{2, 3, 8}) {
    for (int64_t rank = 0; rank < world_size; ++rank) {
      for (const bool drop_last : {false, true}) {
        for (const bool shuffle : {false, true}) {
          for (size_t i = small ? 0 : seeds.size() - 1; i < seeds.size(); ++i) {
            state = Digest(IndicesOf(size,
                                     {.num_replicas = world_size,
                                      .rank = rank,
                                      .shuffle = shuffle,
                                      .seed = seeds[i].first,
                                      .drop_last = drop_last},
                                     seeds[i].second),
                           state);
          }
        }
      }
    }
  }
  return state;
}

void CheckList(std::istream& in) {
  int64_t size, epoch;
  Config config;
  char colon;
  in >> size >> config.num_replicas >> config.rank >> config.seed >> epoch >>
      config.shuffle >> config.drop_last >> colon;
  const std::vector<int64_t> expected(std::istream_iterator<int64_t>(in), {});
  EXPECT_EQ(IndicesOf(size, config, epoch), expected);
}

void CheckSweep(std::istream& in) {
  int64_t size;
  uint64_t expected;
  in >> size >> std::hex >> expected;
  EXPECT_EQ(SweepDigest(size), expected);
}

TEST(DistributedSamplerTest, EqualsPython) {
  std::ifstream goldens("samplers/goldens/distributed_sampler.txt");
  std::string line, kind;
  int lines = 0;
  while (std::getline(goldens, line)) {
    SCOPED_TRACE(line);
    std::istringstream in(line);
    in >> kind;
    kind == "list" ? CheckList(in) : CheckSweep(in);
    ++lines;
  }
  EXPECT_EQ(lines, 493);
}

TEST(DistributedSamplerTest, PaddedRanksAreEquallyLongAndCoverTheDataset) {
  Sweep([](int64_t size, int64_t world_size, bool shuffle) {
    const auto ranks =
        AllRanks(size, {.num_replicas = world_size, .shuffle = shuffle}, 2);
    const size_t expected = (size + world_size - 1) / world_size;
    EXPECT_THAT(ranks, Each(SizeIs(expected)));
    std::vector<int64_t> order = Interleaved(ranks);
    // The dataset once, then the padding: the order again from its front.
    for (size_t i = size; i < order.size(); ++i) {
      EXPECT_EQ(order[i], order[i - size]);
    }
    order.resize(size);
    EXPECT_TRUE(IsPermutation(order));
  });
}

TEST(DistributedSamplerTest, RanksThatDropTheTailAreEquallyLongAndDisjoint) {
  Sweep([](int64_t size, int64_t world_size, bool shuffle) {
    const auto ranks = AllRanks(
        size,
        {.num_replicas = world_size, .shuffle = shuffle, .drop_last = true}, 2);
    EXPECT_THAT(ranks, Each(SizeIs(size / world_size)));
    const std::vector<int64_t> order = Interleaved(ranks);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(),
              order.size());
  });
}

TEST(DistributedSamplerTest, ExactRanksPartitionTheDataset) {
  Sweep([](int64_t size, int64_t world_size, bool shuffle) {
    const auto ranks = AllRanks(
        size,
        {.num_replicas = world_size, .shuffle = shuffle, .mode = Mode::kExact},
        2);
    EXPECT_TRUE(IsPermutation(Interleaved(ranks)));
    EXPECT_EQ(static_cast<int64_t>(Interleaved(ranks).size()), size);
    EXPECT_LE(ranks.front().size() - ranks.back().size(), 1u);
  });
}

TEST(DistributedSamplerTest, AnEmptyDatasetGivesNothing) {
  for (const Mode mode : {Mode::kPadded, Mode::kExact}) {
    EXPECT_THAT(AllRanks(0, {.num_replicas = 3, .mode = mode}),
                Each(IsEmpty()));
  }
}

TEST(DistributedSamplerTest, EpochsDifferAndComeBack) {
  auto sampler = *DistributedSampler::Create(100, {.num_replicas = 2});
  sampler->set_epoch(1);
  const std::vector<int64_t> first = sampler->Indices();
  sampler->set_epoch(2);
  EXPECT_NE(sampler->Indices(), first);
  sampler->set_epoch(1);
  EXPECT_EQ(sampler->Indices(), first);
}

TEST(DistributedSamplerTest, NoticesAForgottenSetEpoch) {
  CapturedWarnings warnings;
  auto sampler = *DistributedSampler::Create(5, {});
  sampler->Indices();
  sampler->set_epoch(1);
  sampler->Indices();
  EXPECT_THAT(warnings.messages(), IsEmpty());
  sampler->Indices();
  sampler->Indices();
  ASSERT_THAT(warnings.messages(), SizeIs(1));
  EXPECT_THAT(warnings.messages()[0],
              AllOf(HasSubstr("DistributedSampler"), HasSubstr("set_epoch"),
                    HasSubstr("same order again")));
}

TEST(DistributedSamplerTest, WithoutShufflingThereIsNothingToForget) {
  CapturedWarnings warnings;
  auto sampler = *DistributedSampler::Create(5, {.shuffle = false});
  sampler->Indices();
  sampler->Indices();
  EXPECT_THAT(warnings.messages(), IsEmpty());
}

std::string MessageFor(int64_t size, const Config& config) {
  const absl::Status status = DistributedSampler::Create(size, config).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(DistributedSamplerTest, RefusesWhatMakesNoSense) {
  EXPECT_THAT(MessageFor(-5, {}), HasSubstr("dataset size is -5"));
  EXPECT_THAT(MessageFor(5, {.num_replicas = 0}),
              HasSubstr("the world size) is 0"));
  EXPECT_THAT(MessageFor(5, {.num_replicas = -3}),
              HasSubstr("the world size) is -3"));
  EXPECT_THAT(MessageFor(5, {.num_replicas = 2, .rank = 2}),
              HasSubstr("the rank is 2; with 2 replicas it must be in 0 .. 1"));
  EXPECT_THAT(MessageFor(5, {.num_replicas = 2, .rank = -1}),
              HasSubstr("the rank is -1"));
  EXPECT_THAT(MessageFor(5, {.drop_last = true, .mode = Mode::kExact}),
              HasSubstr("drop_last cannot be combined"));
}

}  // namespace
}  // namespace rankwise
