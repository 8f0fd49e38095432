#include "records/host.h"

#include <gtest/gtest.h>

namespace rankwise {
namespace {

TEST(Host, ThisMachineHasCoresAndMemory) {
  const HostInfo host = CollectHostInfo();
  EXPECT_GT(host.cores, 0);
  EXPECT_GT(host.memory_bytes, 1 << 20);
  EXPECT_FALSE(host.hostname.empty());
}

TEST(Host, CpuModelIsTheFirstModelName) {
  EXPECT_EQ(CpuModel("processor\t: 0\nmodel\t\t: 85\n"
                     "model name\t: A Processor @ 2.0 GHz\n\n"
                     "model name\t: another\n"),
            "A Processor @ 2.0 GHz");
}

TEST(Host, CpuModelIsEmptyWhereTheKernelNamesNone) {
  EXPECT_EQ(CpuModel("processor : 0\nBogoMIPS : 50.0\n"), "");
  EXPECT_EQ(CpuModel(""), "");
}

TEST(Host, CompilerHasNameAndVersion) {
  EXPECT_NE(CompilerVersion().find("++ "), std::string::npos);
}

}  // namespace
}  // namespace rankwise
