#include "analysis/study/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "analysis/study/study_fixture_for_test.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Provides a program of each name on the PATH.
class HostsTest : public StudyTest {
 protected:
  HostsTest() {
    std::filesystem::create_directories(root() / "bin");
    for (const char* name : {"mpirun", "srun"}) {
      WriteFile(std::string("bin/") + name, "#!/bin/sh\nexit 9\n");
      std::filesystem::permissions(root() / "bin" / name,
                                   std::filesystem::perms::owner_all);
    }
    variables_["PATH"] = "/nowhere:" + (root() / "bin").string();
  }

  absl::StatusOr<StudyHosts> Find(const std::string& names, int64_t each) {
    return FindHosts(names, each, [this](const char* name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    });
  }
  StudyHosts Hosts(const std::string& names, int64_t each) {
    auto hosts = Find(names, each);
    EXPECT_TRUE(hosts.ok()) << hosts.status();
    return *std::move(hosts);
  }
  std::string Refusal(const std::string& names, int64_t each) {
    return std::string(Find(names, each).status().message());
  }
  std::string Prefix(const StudyHosts& hosts, int64_t ranks) {
    return absl::StrJoin(LaunchPrefix(hosts, ranks, 3), " ");
  }

  std::map<std::string, std::string> variables_;
};

TEST_F(HostsTest, WithoutAnyTrainersStartTheirRanks) {
  const StudyHosts one = Hosts("", 0);
  EXPECT_EQ(one.launcher, "");
  EXPECT_TRUE(LaunchPrefix(one, 4, 1).empty());
  EXPECT_TRUE(CheckSize(one, 5).ok());
  variables_["SLURM_JOB_NUM_NODES"] = "1";
  EXPECT_EQ(Hosts("", 0).launcher, "");
  EXPECT_THAT(Refusal("", 2), HasSubstr("--ranks_per_host=2: has no effect"));
}

TEST_F(HostsTest, SizesAreThoseWithinAHostAndWholeHosts) {
  EXPECT_THAT(SizesOver(Hosts("a,b,c", 4)), ElementsAre(1, 2, 4, 8, 12));
  EXPECT_THAT(SizesOver(Hosts("a,b", 3)), ElementsAre(1, 2, 3, 6));
  EXPECT_THAT(SizesOver(Hosts("a", 1)), ElementsAre(1));
  const StudyHosts hosts = Hosts("a,b,c", 4);
  for (const int64_t ranks : {1, 3, 4, 8, 12})
    EXPECT_TRUE(CheckSize(hosts, ranks).ok()) << ranks;
  for (const int64_t ranks : {5, 16})
    EXPECT_TRUE(absl::IsInvalidArgument(CheckSize(hosts, ranks))) << ranks;
}

TEST_F(HostsTest, MpirunFillsTheHostsInTheirOrder) {
  const StudyHosts hosts = Hosts("a,b", 2);
  const std::string mpirun = (root() / "bin/mpirun").string();
  EXPECT_EQ(Prefix(hosts, 4), mpirun +
                                  " -np 4 --host a:2,b:2 --bind-to none -x "
                                  "MASTER_ADDR=a");
  EXPECT_EQ(Prefix(hosts, 1),
            mpirun + " -np 1 --host a:1 --bind-to none -x MASTER_ADDR=a");
}

TEST_F(HostsTest, SrunTakesTheAllocation) {
  variables_["SLURM_JOB_NUM_NODES"] = "3";
  variables_["SLURM_NTASKS_PER_NODE"] = "2";
  const StudyHosts all = Hosts("", 0);
  EXPECT_THAT(SizesOver(all), ElementsAre(1, 2, 4, 6));
  EXPECT_EQ(Prefix(all, 4), (root() / "bin/srun").string() +
                                " --nodes=2 --ntasks=4 --ntasks-per-node=2 "
                                "--cpus-per-task=3 --distribution=block "
                                "--kill-on-bad-exit=1");
  EXPECT_THAT(Prefix(Hosts("n2,n3", 2), 2), HasSubstr("--nodelist=n2"));
  EXPECT_THAT(Prefix(Hosts("n2,n3", 2), 4), HasSubstr("--nodelist=n2,n3"));
  EXPECT_THAT(Refusal("a,b,c,d", 1), HasSubstr("the Slurm allocation has 3"));
}

TEST_F(HostsTest, BadInputIsNamed) {
  EXPECT_THAT(Refusal("a,b", 0),
              HasSubstr("--ranks_per_host is required with --hosts"));
  EXPECT_THAT(Refusal("a,b", 4097),
              HasSubstr("--ranks_per_host=4097: expected at most 4096"));
  EXPECT_THAT(Refusal("a,a", 1), HasSubstr("a occurs twice"));
  EXPECT_THAT(Refusal("a:4,b", 1),
              HasSubstr("\"a:4\" is not a valid host name"));
  EXPECT_THAT(Refusal("a,,b", 1), HasSubstr("\"\" is not a valid host name"));
  EXPECT_THAT(Refusal("-x", 1), HasSubstr("\"-x\" is not a valid host name"));
  variables_["PATH"] = "/nowhere";
  const absl::Status missing = Find("a,b", 1).status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("--hosts: mpirun is not on the PATH"));
}

TEST_F(HostsTest, ADryRunShowsTheCommandsOfAllHosts) {
  const std::string flags =
      "--hosts=a,b --ranks_per_host=2 --repetitions=1 --comm_bench --dry_run "
      "--verbose ";
  const std::string path = getenv("PATH");
  setenv("PATH", ((root() / "bin").string() + ":" + path).c_str(), 1);
  const Outcome outcome = Study(flags);
  const Outcome uneven = Study(flags + "--world_sizes=1,3");
  const Outcome unknown = Study("--hosts=a --dry_run");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string start = (root() / "bin/mpirun").string() + " -np ";
  const std::string end =
      " --bind-to none -x MASTER_ADDR=a " + (root() / "trainers").string();
  EXPECT_THAT(
      outcome.output,
      AllOf(HasSubstr(start + "4 --host a:2,b:2" + end + "/ddp --record="),
            HasSubstr(start + "2 --host a:2" + end + "/comm_bench --record="),
            HasSubstr(start + "1 --host a:1" + end + "/single --record="),
            Not(HasSubstr("--nproc="))));
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_THAT(uneven.output,
              HasSubstr("--world_sizes: 3 ranks do not fill whole hosts"));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output,
              HasSubstr("--ranks_per_host is required with --hosts"));
}

TEST_F(HostsTest, RunsByTheRealMpirun) {
  if (std::system("command -v mpirun > /dev/null") != 0)
    GTEST_SKIP() << "OpenMPI's mpirun is not installed";
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  const Outcome outcome = Study(
      "--hosts=localhost --ranks_per_host=2 --repetitions=1 --comm_bench");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(CountRecords(".jsonl"), 5);
  EXPECT_THAT(ReadFile("out/study.flags"),
              AllOf(HasSubstr("--hosts=localhost\n"),
                    HasSubstr("--world_sizes=1,2\n")));
  const Outcome resumed = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("Kept: 5 of 5 runs"));
}

}  // namespace
}  // namespace rankwise
