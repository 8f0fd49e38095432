#include "tests/cluster/cluster.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "records/record.h"

namespace rankwise {
namespace {

constexpr char kScripts[] = "tests/cluster/";
constexpr int kNotAllowed = 77;  // exit code of cluster.sh

std::vector<std::string> CommandFor(const Cluster::Options& options) {
  std::vector<std::string> command = {
      Runfile(absl::StrCat(kScripts, "cluster.sh")),
      absl::StrCat("--hosts=", options.hosts)};
  if (!options.rate.empty())
    command.push_back(absl::StrCat("--rate=", options.rate));
  for (const char* word : {"bash", "-c", "echo ready; exec sleep infinity"})
    command.push_back(word);
  return command;
}

std::string HostName(int host) { return absl::StrCat("host", host); }

// Returns a command that runs `action` for each process $pid on the host,
// except `sleep infinity`, which keeps the host and, on host1, the cluster
// alive.
std::string ForEachProcessOn(int host, const std::string& action) {
  return absl::StrCat("keeper=$(< /run/cluster/", HostName(host),
                      ") && network=$(readlink /proc/$keeper/ns/net) && "
                      "for folder in /proc/[0-9]*; do pid=${folder#/proc/}; "
                      "[[ $(readlink $folder/ns/net) != \"$network\" ]] || "
                      "grep -qz infinity $folder/cmdline || ",
                      action, "; done");
}

}  // namespace

Cluster::Cluster(const Options& options) : process_(CommandFor(options)) {
  constexpr absl::Duration kPause = absl::Milliseconds(50);
  while (!process_.AwaitOutput("ready", 1, kPause)) {
    const int code = process_.Wait(absl::ZeroDuration());
    if (code < 0) continue;
    why_not_ = std::string(absl::StripAsciiWhitespace(process_.Stderr()));
    EXPECT_EQ(code, kNotAllowed) << why_not_;
    return;
  }
  const std::vector<pid_t> children = ChildrenOf(process_.pid());
  if (children.size() == 1) first_ = children[0];
}

// Returns a command in the cluster's namespaces, but on no host.
std::vector<std::string> Cluster::Enter(const std::string& command) const {
  return {"/usr/bin/env",
          "nsenter",
          absl::StrCat("--target=", first_),
          "--net",
          "--pid",
          "--mount",
          "--uts",
          "--ipc",
          "/bin/bash",
          "-c",
          absl::StrCat("cd \"$0\" && ", command),
          std::filesystem::current_path().string()};
}

std::unique_ptr<TestProcess> Cluster::Start(const std::string& host,
                                            const std::string& command) const {
  std::vector<std::string> argv =
      Enter(absl::StrCat("exec ", kScripts, "on_host.sh \"$@\""));
  argv.push_back(host);
  argv.push_back(command);
  return std::make_unique<TestProcess>(std::move(argv));
}

Finished Cluster::Run(const std::string& host,
                      const std::string& command) const {
  return Finish(*Start(host, command));
}

std::string Cluster::RunOutside(const std::string& command) const {
  TestProcess process(Enter(command));
  const Finished finished = Finish(process);
  EXPECT_EQ(finished.code, 0) << command << ": " << finished.err;
  return finished.out;
}

void Cluster::SetLink(int host, bool is_up) const {
  RunOutside(absl::StrCat("ip link set port", host, is_up ? " up" : " down"));
}

void Cluster::Destroy(int host) const {
  // The ends of its processes must not be visible outside the host.
  SetLink(host, false);
  RunOutside(ForEachProcessOn(host, "kill -KILL $pid"));
}

std::vector<std::string> Cluster::ProgramsOn(int host) const {
  return absl::StrSplit(RunOutside(ForEachProcessOn(host, "cat $folder/comm")),
                        '\n', absl::SkipEmpty());
}

std::string Torchrun(const Cluster& cluster, std::string* why_not) {
  const Finished python =
      cluster.Run("host1", "python3 analysis/versus/environments.py pytorch");
  if (python.code != 0) {
    *why_not = python.err;
    return "";
  }
  return absl::StrCat(std::string(absl::StripAsciiWhitespace(python.out)),
                      " -m torch.distributed.run --no-python");
}

void ClusterTest::SetUp() {
  cluster_ = std::make_unique<Cluster>(options());
  if (!cluster_->why_not().empty()) GTEST_SKIP() << cluster_->why_not();
}

Ranks StartRanks(const Cluster& cluster, int hosts, int per_host,
                 const std::string& command, const std::string& variables) {
  Ranks ranks;
  for (int rank = 0; rank < hosts * per_host; ++rank) {
    ranks.push_back(cluster.Start(
        HostName(1 + rank / per_host),
        absl::StrCat(
            "exec env RANK=", rank, " WORLD_SIZE=", hosts * per_host,
            " LOCAL_RANK=", rank % per_host, " LOCAL_WORLD_SIZE=", per_host,
            " MASTER_ADDR=host1 MASTER_PORT=29500 ", variables, " ", command)));
  }
  return ranks;
}

int64_t HostsOf(const std::string& record) {
  const auto runs = RecordsOf<RunRecord>(record);
  return runs.empty() ? 0 : runs[0].hosts;
}

std::map<std::string, int64_t> HostsOfEach(const std::string& study_folder) {
  std::map<std::string, int64_t> hosts;
  for (const auto& file : std::filesystem::directory_iterator(study_folder)) {
    if (file.path().extension() == ".jsonl")
      hosts[file.path().stem()] = HostsOf(file.path());
  }
  return hosts;
}

void ExpectErrors(const Ranks& ranks, const std::vector<int>& those,
                  const std::string& regex) {
  const SteadyTime start = SteadyNow();
  for (const int rank : those) {
    TestProcess& process = *ranks[static_cast<size_t>(rank)];
    EXPECT_GT(process.Wait(absl::Seconds(20)), 0);
    EXPECT_THAT(process.Stderr(),
                ::testing::ContainsRegex(absl::StrCat(
                    "ddp: rank ", rank, ": error: [^\n]*", regex)));
  }
  std::printf("they ended within %.1f s\n",
              absl::ToDoubleSeconds(ElapsedSince(start)));
}

}  // namespace rankwise
