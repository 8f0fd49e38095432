// Tests that Python's safetensors reads the exported weights. Skipped if the
// Python in RANKWISE_PYTHON, or else python3, lacks safetensors or numpy.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/comm/test_process.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

// Prints each tensor's name, type and shape, in name order, and writes their
// bytes to a file, one after another.
constexpr char kRead[] = R"(
import pathlib, sys
from safetensors.numpy import load_file
tensors = {}
for file in pathlib.Path(sys.argv[1]).glob("model*.safetensors"):
    tensors.update(load_file(file))
with open(sys.argv[2], "wb") as values:
    for name, tensor in sorted(tensors.items()):
        print(name, tensor.dtype, *tensor.shape)
        values.write(tensor.tobytes())
)";

Finished Python(const Flags& arguments) {
  const char* named = std::getenv("RANKWISE_PYTHON");
  TestProcess python(Joined(
      {"/usr/bin/env", named == nullptr ? "python3" : named}, arguments));
  return Finish(python);
}

std::string Described(const Weights& weights) {
  std::string text;
  for (const auto& [name, tensor] : weights) {
    absl::StrAppend(&text, name, " float32");
    for (const int64_t size : tensor.sizes()) absl::StrAppend(&text, " ", size);
    text += "\n";
  }
  return text;
}

std::string BytesOf(const Weights& weights) {
  std::string bytes;
  for (const auto& [name, tensor] : weights) {
    const torch::Tensor values = tensor.contiguous();
    bytes.append(static_cast<const char*>(values.const_data_ptr()),
                 values.nbytes());
  }
  return bytes;
}

TEST(ExportTest, PythonReadsTheWholeModelThatRanksHadInParts) {
  const Finished probe = Python({"-c", "import numpy, safetensors.numpy"});
  if (probe.code != 0) {
    GTEST_SKIP() << "no Python with safetensors and numpy "
                    "(--test_env=RANKWISE_PYTHON names another): "
                 << probe.err;
  }
  const Flags flags = {"--model=gpt",    "--depth=1",
                       "--width=64",     "--sequence_length=16",
                       "--batch_size=4", "--train_size=32",
                       "--eval=false",   "--epochs=1"};
  for (const char* trainer : {"fsdp", "pipeline"}) {
    SCOPED_TRACE(trainer);
    const Trained run = Train(trainer, 2, flags);
    ASSERT_FALSE(run.weights.empty());
    const std::string file = run.dir + "/values";
    const Finished read = Python({"-c", kRead, run.dir, file});
    ASSERT_EQ(read.code, 0) << read.err;
    EXPECT_EQ(read.out, Described(run.weights));
    std::stringstream values;
    values << std::ifstream(file, std::ios::binary).rdbuf();
    EXPECT_TRUE(values.str() == BytesOf(run.weights));
  }
}

}  // namespace
}  // namespace rankwise
