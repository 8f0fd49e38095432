// Checks the machine code in the binary, without a GPU and without the
// toolkit's cuobjdump. NVIDIA does not document the container; nvcc 13.0 writes
// a header (magic, version, header size, size of the rest), then entries (kind,
// version, header size, code size, ..., architecture).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/comm/test_process.h"
#include "parallel/device/device_facts.h"

namespace rankwise::micro {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr uint32_t kMagic = 0xBA55ED50;
constexpr uint16_t kPtx = 1, kMachineCode = 2;
constexpr size_t kArchitectureAt = 28;

template <typename T>
T Read(const std::string& file, size_t at) {
  T value = {};
  if (at + sizeof(T) <= file.size())
    std::memcpy(&value, file.data() + at, sizeof(T));
  return value;
}

// Returns "sm_90" or "ptx_100" per entry.
std::vector<std::string> Entries(const std::string& file, size_t at,
                                 size_t end) {
  std::vector<std::string> entries;
  while (at < end) {
    const auto kind = Read<uint16_t>(file, at);
    const char* const name = kind == kMachineCode ? "sm_"
                             : kind == kPtx       ? "ptx_"
                                                  : "other_";
    entries.push_back(
        absl::StrCat(name, Read<uint32_t>(file, at + kArchitectureAt)));
    const uint64_t size =
        Read<uint32_t>(file, at + 4) + Read<uint64_t>(file, at + 8);
    if (size == 0) break;
    at += size;
  }
  return entries;
}

// Returns one list per linked .cu file.
std::vector<std::vector<std::string>> CodeIn(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string file(std::istreambuf_iterator<char>(stream), {});
  EXPECT_FALSE(file.empty()) << path;
  const std::string magic(reinterpret_cast<const char*>(&kMagic),
                          sizeof(kMagic));
  std::vector<std::vector<std::string>> code;
  for (size_t at = file.find(magic); at != std::string::npos;
       at = file.find(magic, at + 1)) {
    if (Read<uint16_t>(file, at + 4) != 1) continue;
    const size_t first = at + Read<uint16_t>(file, at + 6);
    code.push_back(Entries(file, first, first + Read<uint64_t>(file, at + 8)));
  }
  return code;
}

TEST(Fatbinary, HasCodeForEveryGpuThatIsNamedAndPtxForLaterOnes) {
  const auto code = CodeIn(Runfile("comm_bench/cuda/micro"));
  if (!ThisBuild().has_cuda) {
    EXPECT_THAT(code, IsEmpty());
    return;
  }
  EXPECT_THAT(code, Not(IsEmpty()));
  EXPECT_THAT(
      code, Each(UnorderedElementsAre("sm_80", "sm_90", "sm_100", "ptx_100")));
}

}  // namespace
}  // namespace rankwise::micro
