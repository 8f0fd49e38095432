// Compares training on files of token ids with training on text: bytes written
// as uint16 ids must give the losses and weights of `--dataset=text`, bit by
// bit. An id outside the vocabulary must end the run with its position.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// 20 windows of 16 tokens and the token after them: both datasets hold out the
// last two for the test split.
constexpr int kWindow = 17;
constexpr int kTokens = 20 * kWindow;

uint8_t TokenAt(int position) {
  return static_cast<uint8_t>(position * position % 251);
}

std::string WriteText(const std::string& dir) {
  std::ofstream file(dir + "/text", std::ios::binary);
  for (int i = 0; i < kTokens; ++i) file.put(static_cast<char>(TokenAt(i)));
  return dir + "/text";
}

// Writes two files for the train split and one for the test split, of uint16
// ids without a header. The token at position `bad` is 256.
void WriteTokens(const std::string& dir, int bad = -1) {
  std::ofstream files[] = {std::ofstream(dir + "/train_0.bin"),
                           std::ofstream(dir + "/train_1.bin"),
                           std::ofstream(dir + "/val.bin")};
  for (int i = 0; i < kTokens; ++i) {
    const int window = i / kWindow;
    std::ofstream& file = files[window < 7 ? 0 : window < 18 ? 1 : 2];
    file.put(static_cast<char>(i == bad ? 0 : TokenAt(i)));
    file.put(i == bad ? 1 : 0);
  }
}

TEST(TokenFilesTest, BytesAsTokensTrainAsText) {
  const std::string dir = FreshDir("token_files");
  const std::string text = WriteText(dir);
  WriteTokens(dir);
  const Flags flags = {"--model=gpt", "--sequence_length=16", "--batch_size=3",
                       "--epochs=2"};
  for (const int ranks : {1, 2}) {
    const std::string trainer = ranks == 1 ? "single" : "ddp";
    const Trained expected =
        Train(trainer, ranks,
              Joined(flags, {"--dataset=text", "--data_dir=" + text}));
    ASSERT_EQ(expected.losses[0].size(), ranks == 1 ? 12u : 6u);
    ASSERT_EQ(expected.evaluations.size(), 2u);
    const Trained run =
        Train(trainer, ranks,
              Joined(flags, {"--dataset=tokens", "--data_dir=" + dir}));
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(run.losses[rank], expected.losses[rank]) << trainer << rank;
    EXPECT_EQ(LargestDistance(run.weights, expected.weights), 0) << trainer;
    EXPECT_EQ(run.evaluations.back().mean_loss,
              expected.evaluations.back().mean_loss);
  }
}

TEST(TokenFilesTest, AnUnknownIdEndsTheRunWithItsPlace) {
  const std::string dir = FreshDir("unknown_id");
  WriteTokens(dir, /*bad=*/5 * kWindow + 16);
  for (const char* workers : {"--data_workers=0", "--data_workers=2"}) {
    const Finished run =
        RunTrainer("ddp", {"--nproc=2", "--model=gpt", "--sequence_length=16",
                           "--batch_size=3", "--data_dir=" + dir, workers});
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr(dir + "/train_0.bin has the id 256 at "
                                               "position 101 (byte offset "
                                               "202), but the model's "
                                               "vocabulary is 0 .. 255; "),
                               Not(HasSubstr("frame #")),
                               Not(HasSubstr("terminate called"))));
  }
}

}  // namespace
}  // namespace rankwise
