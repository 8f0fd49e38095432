#include "comm_bench/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>

#include <string>

namespace rankwise::comm_bench {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Describes a synthetic machine of hwloc.
std::string Described(const std::string& machine) {
  hwloc_topology_t topology = nullptr;
  hwloc_topology_init(&topology);
  EXPECT_EQ(hwloc_topology_set_synthetic(topology, machine.c_str()), 0);
  EXPECT_EQ(hwloc_topology_load(topology), 0);
  const std::string text = DescribeTopology(topology);
  hwloc_topology_destroy(topology);
  return text;
}

TEST(DescribeTopology, CountsWhatAMachineHas) {
  EXPECT_EQ(Described("package:2 l3:1(size=33554432) core:4 "
                      "l2:1(size=1310720) pu:2"),
            "2 packages, 8 cores, 16 PUs, 1 NUMA node, L2 8 x 1.25 MiB, "
            "L3 2 x 32 MiB");
  EXPECT_EQ(Described("package:1 [numa] l3:1(size=33554432) core:1 "
                      "l2:1(size=524288) pu:1"),
            "1 package, 1 core, 1 PU, 1 NUMA node, L2 512 KiB, L3 32 MiB");
}

TEST(DescribeTopology, LeavesOutUnknownCaches) {
  EXPECT_EQ(Described("package:1 core:2 pu:1"),
            "1 package, 2 cores, 2 PUs, 1 NUMA node");
}

TEST(RelevantVariables, AreThoseThatSteerCommunicationAndThreads) {
  EXPECT_THAT(
      RelevantVariables({"HOME=/root", "NCCL_ALGO=Ring", "OMP_NUM_THREADS=1",
                         "CUDA_VISIBLE_DEVICES=", "GLOO_SOCKET_IFNAME=lo=0",
                         "TORCH_FR_BUFFER_SIZE=0", "MY_NCCL_ALGO=Tree",
                         "CUDA_VISIBLE_DEVICES_X=1", "NCCL_", ""}),
      ElementsAre(Pair("CUDA_VISIBLE_DEVICES", ""),
                  Pair("GLOO_SOCKET_IFNAME", "lo=0"), Pair("NCCL_", ""),
                  Pair("NCCL_ALGO", "Ring"), Pair("OMP_NUM_THREADS", "1"),
                  Pair("TORCH_FR_BUFFER_SIZE", "0")));
}

TEST(FormatCpus, JoinsNeighbours) {
  EXPECT_EQ(FormatCpus({}), "");
  EXPECT_EQ(FormatCpus({3}), "3");
  EXPECT_EQ(FormatCpus({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(CollectEnvironment, DescribesThisProcess) {
  setenv("GLOO_OF_THIS_TEST", "on", /*overwrite=*/1);
  const EnvironmentRecord record = CollectEnvironment(3);
  EXPECT_EQ(record.rank, 3);
  EXPECT_THAT(record.topology, HasSubstr("package"));
  EXPECT_FALSE(record.cpus.empty());
  EXPECT_THAT(record.variables, Contains(Pair("GLOO_OF_THIS_TEST", "on")));
}

TEST(CollectEnvironment, SeesThePinning) {
  const int64_t cpu = CollectEnvironment(0).cpus.back();
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_THAT(CollectEnvironment(0).cpus, ElementsAre(cpu));
  sched_setaffinity(0, sizeof(all), &all);
}

}  // namespace
}  // namespace rankwise::comm_bench
