// Tests that a checkpoint is independent of the ranks that wrote it: a run
// continues with another mesh, or in one process, exactly like an uninterrupted
// one, and exports the same weights as a single process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStop = 5;
constexpr int64_t kEnd = 9;

struct Way {
  std::string name;
  std::string trainer;
  int ranks = 1;
  Flags flags = {};
};

// Seven steps per epoch, the last one with fewer examples; clipped, so that the
// norm is over the whole model on every mesh.
std::string Run(const Way& way, const std::string& dir, int64_t max_steps,
                const Flags& more) {
  const Flags flags = {
      "--model=gpt",
      "--depth=2",
      "--width=64",
      "--sequence_length=32",
      "--optimizer=adam",
      "--clip_grad_norm=1",
      "--train_size=106",
      "--batch_size=4",
      "--eval=false",
      "--epochs=2",
      "--threads=1",
      absl::StrCat("--max_steps=", max_steps),
      absl::StrCat("--nproc=", way.ranks),
      "--checkpoint_dir=" + dir,
      "--record=" + dir + "/run.jsonl",
      way.trainer == "hybrid" ? "--microbatches=4" : "--accumulate=4"};
  return OutputOf(way.trainer, Joined(Joined(flags, way.flags), more));
}

// Returns the folder of a run that ended after `max_steps` steps, one per way
// and number of steps.
const std::string& DirOf(const Way& way, int64_t max_steps) {
  static auto* const kDirs = new std::map<std::string, std::string>;
  const std::string key = absl::StrCat(way.name, max_steps);
  const auto found = kDirs->find(key);
  if (found != kDirs->end()) return found->second;
  const std::string dir = FreshDir(key);
  Run(way, dir, max_steps, {});
  return kDirs->emplace(key, dir).first->second;
}

// Continues from a copy of `stopped`, with a separate record file.
std::string GoOn(const Way& way, const std::string& stopped) {
  const std::string dir = FreshDir("resumed");
  std::filesystem::copy(stopped, dir);
  std::filesystem::remove(dir + "/run.jsonl");
  EXPECT_THAT(Run(way, dir, kEnd, {"--resume"}),
              HasSubstr("resumed after step 5"));
  return dir;
}

Losses LossesIn(const std::string& dir, const Way& way) {
  return MeanLosses(dir + "/run.jsonl", way.ranks);
}

const Way kSingle = {"Single", "single"};
const Way kOneRank = {"OneRank", "hybrid", 1, {"--tp=1"}};
const Way kTp2 = {"Tp2", "hybrid", 2, {"--tp=2"}};
const Way kSp2 = {"Sp2", "tensor_parallel", 2, {"--sequence_parallel"}};
const Way kPp2 = {"Pp2", "hybrid", 2, {"--pp=2"}};
const Way kCp2 = {"Cp2", "hybrid", 2, {"--cp=2"}};
const Way kPp2Tp2 = {"Pp2Tp2", "hybrid", 4, {"--pp=2", "--tp=2"}};

// Two attention heads that share one key and value head.
Way Llama(const Way& way) {
  return {"Llama" + way.name, way.trainer, way.ranks,
          Joined(way.flags, {"--model=llama", "--kv_heads=1"})};
}

struct Change {
  Way from, to, single = kSingle;
};

std::string NameOf(const ::testing::TestParamInfo<Change>& info) {
  return absl::StrCat(info.param.from.name, "To", info.param.to.name);
}

void PrintTo(const Change& change, std::ostream* out) {
  *out << change.from.name << " to " << change.to.name;
}

class HybridResumeTest : public ::testing::TestWithParam<Change> {};

TEST_P(HybridResumeTest, GoesOnAsIfItHadNeverStopped) {
  const auto& [from, to, single] = GetParam();
  const std::string dir = GoOn(to, DirOf(from, kStop));
  const bool same = from.name == to.name;
  const Way& undisturbed = same ? from : single;
  const Losses expected = LossesIn(DirOf(undisturbed, kEnd), undisturbed);
  const Losses losses = LossesIn(dir, to);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kEnd));
  ASSERT_EQ(losses.size(), static_cast<size_t>(kEnd - kStop));
  for (const auto& [step, loss] : losses) {
    EXPECT_NEAR(loss, expected.at(step), same ? 0 : 1e-5 * loss)
        << "step " << step;
  }
  if (!same) return;
  EXPECT_EQ(LargestDistance(WeightsIn(DirOf(from, kEnd)), WeightsIn(dir)), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, HybridResumeTest,
    ::testing::Values(Change{kTp2, kTp2}, Change{kTp2, kSingle},
                      Change{kTp2, kOneRank}, Change{kTp2, kPp2},
                      Change{kPp2, kTp2}, Change{kCp2, kCp2},
                      Change{kCp2, kSingle}, Change{kSp2, kSp2},
                      Change{kSp2, kCp2}, Change{kSingle, kPp2Tp2},
                      Change{kPp2Tp2, kPp2Tp2}, Change{kPp2Tp2, kSp2},
                      Change{Llama(kSp2), Llama(kPp2), Llama(kSingle)},
                      Change{Llama(kCp2), Llama(kTp2), Llama(kSingle)}),
    NameOf);

TEST(HybridExportTest, HasTheNamesAndShapesOfOneProcess) {
  const Weights expected = WeightsIn(DirOf(kSingle, kEnd));
  for (const Way& way : {kTp2, kSp2, kPp2Tp2}) {
    SCOPED_TRACE(way.name);
    const Weights weights = WeightsIn(DirOf(way, kEnd));
    ASSERT_EQ(weights.size(), expected.size());
    for (const auto& [name, weight] : expected) {
      ASSERT_TRUE(weights.count(name)) << name;
      EXPECT_EQ(weights.at(name).sizes(), weight.sizes()) << name;
    }
  }
}

}  // namespace
}  // namespace rankwise
