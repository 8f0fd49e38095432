// Tests that the first 20 losses of single and ddp equal those of the same
// program in PyTorch from Python (goldens by goldens/make_pytorch_losses.py).

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

constexpr uint32_t kPixels = 3072;
constexpr uint32_t kRecordsPerFile = 10000;
constexpr double kTolerance = 1e-4;

// As in make_pytorch_losses.py.
uint32_t Mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}

void WriteFile(const std::string& path, uint32_t first_example) {
  std::string bytes;
  bytes.reserve(size_t{kRecordsPerFile} * (1 + kPixels));
  for (uint32_t example = first_example;
       example < first_example + kRecordsPerFile; ++example) {
    const uint32_t label = Mix(example) % 10;
    bytes.push_back(static_cast<char>(label));
    for (uint32_t pixel = 0; pixel < kPixels; ++pixel) {
      bytes.push_back(static_cast<char>(
          label * 12 + (Mix(example * kPixels + pixel) & 127)));
    }
  }
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class PytorchParityTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new std::string(TemporaryPath("cifar"));
    std::filesystem::create_directories(*dir_);
    for (uint32_t i = 0; i < 5; ++i)
      WriteFile(absl::StrCat(*dir_, "/data_batch_", i + 1, ".bin"),
                i * kRecordsPerFile);
    WriteFile(*dir_ + "/test_batch.bin", 5 * kRecordsPerFile);
  }
  static void TearDownTestSuite() {
    std::filesystem::remove_all(*dir_);
    delete dir_;
  }

  static void ExpectGolden(const std::string& golden,
                           const std::string& trainer, int world_size,
                           const Flags& flags) {
    const std::string record = TemporaryPath(golden + ".jsonl");
    OutputOf(trainer,
             Joined(flags, {"--dataset=cifar10", "--data_dir=" + *dir_,
                            "--max_steps=20", "--eval=false", "--seed=0",
                            "--threads=1", "--record=" + record}));
    const Losses losses = MeanLosses(record, world_size);

    std::ifstream file(Runfile("tests/goldens/pytorch_losses.json"));
    const auto expected =
        nlohmann::json::parse(file).at(golden).get<std::vector<double>>();
    ASSERT_EQ(expected.size(), 20u);
    ASSERT_EQ(losses.size(), 20u);
    for (int64_t step = 1; step <= 20; ++step) {
      EXPECT_NEAR(losses.at(step), expected[static_cast<size_t>(step - 1)],
                  kTolerance)
          << "step " << step;
    }
  }

  static std::string* dir_;
};

std::string* PytorchParityTest::dir_ = nullptr;

TEST_F(PytorchParityTest, SingleWithAdam) {
  ExpectGolden("single_adam_batch_64", "single", 1, {"--batch_size=64"});
}

TEST_F(PytorchParityTest, SingleWithSgd) {
  ExpectGolden("single_sgd_batch_64", "single", 1,
               {"--batch_size=64", "--optimizer=sgd", "--lr=0.01"});
}

TEST_F(PytorchParityTest, DdpOnTwoRanks) {
  ExpectGolden("ddp2_adam_batch_32", "ddp", 2,
               {"--nproc=2", "--batch_size=32"});
}

}  // namespace
}  // namespace rankwise
