// A rank that runs a scenario for a test: `test_rank --scenario=NAME`.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/comm/mesh.h"
#include "parallel/comm/test_collectives.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/rank_env.h"
#include "parallel/launch/signals.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/FileStore.hpp"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

ABSL_FLAG(int, nproc, 1, "Ranks to launch.");
ABSL_FLAG(int, max_restarts, 0, "Restarts of a failed job.");
ABSL_FLAG(std::string, scenario, "all_reduce", "Scenario to run.");
ABSL_FLAG(std::string, log_dir, "", "Folder for the ranks' output.");
ABSL_FLAG(std::string, file_store, "", "File through which the ranks meet.");
ABSL_FLAG(absl::Duration, rendezvous_timeout, absl::Seconds(30), "");
ABSL_FLAG(absl::Duration, collective_timeout, absl::Seconds(30), "");
ABSL_FLAG(bool, check_collectives, false, "");
ABSL_FLAG(std::string, device, "cpu", "");
ABSL_FLAG(std::string, backend, "auto", "");
ABSL_FLAG(bool, poll_gloo, false, "");
ABSL_FLAG(absl::Duration, linger, absl::ZeroDuration(),
          "Delay of rank 1's exit after a failure.");
ABSL_FLAG(int, victim, 1, "The rank that a scenario with a victim harms.");
ABSL_FLAG(int, calls, 1000, "Calls per group in scenario mixed.");

namespace rankwise {
namespace {

using CommunicatorPtr = std::unique_ptr<Communicator>;

absl::Status SumOfRanks(Communicator& comm) {
  at::Tensor sum = at::full({2, 3}, comm.rank() + 1.0, comm.device());
  RETURN_IF_ERROR(comm.AllReduce(sum));
  printf("rank %d of %d: sum %.0f\n", comm.rank(), comm.world_size(),
         sum[1][2].item<double>());
  return absl::OkStatus();
}

// Runs collectives until one fails.
absl::Status ReduceForever(Communicator& comm) {
  at::Tensor tensor = at::ones({1000}, comm.device());
  absl::Status status;
  while (status.ok()) status = comm.AllReduce(tensor, ReduceOp::kAverage);
  return status;
}

absl::Status EndOne(Communicator& comm, void (*end)()) {
  RETURN_IF_ERROR(SumOfRanks(comm));
  fprintf(stderr, "rank %d says goodbye\n", comm.rank());
  if (comm.rank() == 1) end();
  return ReduceForever(comm);
}

// Rank 1 stops once the other ranks no longer need it; the others exit.
absl::Status StopOneAtTheEnd(Communicator& comm) {
  RETURN_IF_ERROR(SumOfRanks(comm));
  if (comm.rank() == 1) raise(SIGSTOP);
  return absl::OkStatus();
}

// Rank 1 fails for a reason of its own and delays its exit, like a process that
// frees a GPU.
absl::Status FailByItself(Communicator& comm) {
  RETURN_IF_ERROR(SumOfRanks(comm));
  if (comm.rank() != 1) return ReduceForever(comm);
  return comm.ExplainFailure("reading step 5's data",
                             std::runtime_error("the disk is on fire"));
}

absl::Status ArriveLate(Communicator& comm) {
  RETURN_IF_ERROR(SumOfRanks(comm));
  if (comm.rank() == 1) absl::SleepFor(absl::Seconds(30));
  at::Tensor tensor = at::ones({7, 5}, comm.device());
  return comm.AllReduce(tensor);
}

absl::Status CallDifferent(Communicator& comm) {
  at::Tensor tensor = at::ones({4});
  return comm.rank() == 0 ? comm.AllReduce(tensor) : comm.Broadcast(tensor, 0);
}

absl::Status ReduceDifferentShapes(Communicator& comm) {
  at::Tensor tensor = at::ones({4 + comm.rank()});
  return comm.AllReduce(tensor);
}

absl::Status UseAll(Communicator& comm) {
  at::Tensor mean = at::full({1}, 1.0 * comm.rank(), comm.device());
  absl::Status status = comm.AllReduce(mean, ReduceOp::kAverage);
  if (!status.ok()) return status;
  at::Tensor root = at::full({1}, 1.0 * comm.rank(), comm.device());
  status = comm.Broadcast(root, comm.world_size() - 1);
  if (!status.ok()) return status;
  ASSIGN_OR_RETURN(
      const std::vector<at::Tensor> all,
      comm.AllGather(at::full({1}, 10.0 * comm.rank(), comm.device())));
  status = comm.Barrier();
  printf("mean %.1f root %.0f last %.0f\n", mean.item<double>(),
         root.item<double>(), all.back().item<double>());
  return status;
}

bool IsVictim(const Communicator& comm) {
  return comm.rank() == absl::GetFlag(FLAGS_victim);
}

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

void Send(const GroupPtr& group, int to) {
  std::vector<at::Tensor> message = {at::ones({1000})};
  group->send(message, to, /*tag=*/0)->wait();
}

void Receive(const GroupPtr& group, int from) {
  std::vector<at::Tensor> message = {at::empty({1000})};
  group->recv(message, from, /*tag=*/0)->wait();
}

// A message from the first rank of the group to its last, and one back: each
// rank waits for a neighbour most of the time.
void PassAlong(const GroupPtr& group) {
  const int rank = group->getRank();
  const bool is_last = rank + 1 == group->getSize();
  if (rank > 0) Receive(group, rank - 1);
  if (!is_last) Send(group, rank + 1);
  if (!is_last) Receive(group, rank + 1);
  if (rank > 0) Send(group, rank - 1);
}

// Messages along a chain of all ranks, until the victim is killed.
absl::Status KillInChain(Communicator& comm) {
  try {
    for (int round = 0;; ++round) {
      PassAlong(comm.process_group());
      if (round == 20 && IsVictim(comm)) raise(SIGKILL);
    }
  } catch (const std::exception& error) {
    return comm.ExplainFailure("passing messages", error);
  }
}

absl::StatusOr<std::unique_ptr<DeviceMesh>> TwoByTwo(Communicator& comm) {
  ASSIGN_OR_RETURN(MeshLayout layout, MeshLayout::Create({{"dp", 2}, {"pp", 2}},
                                                         comm.world_size()));
  return DeviceMesh::Create(comm, std::move(layout));
}

void SumAlong(const DeviceMesh& mesh, const std::string& axis) {
  std::vector<at::Tensor> tensors = {at::ones({3})};
  mesh.group(axis).process_group()->allreduce(tensors)->wait();
}

// Communicates like a pipeline with replicas until the victim is killed.
absl::Status KillInMesh(Communicator& comm) {
  ASSIGN_OR_RETURN(const auto mesh, TwoByTwo(comm));
  try {
    for (int round = 0;; ++round) {
      PassAlong(mesh->group("pp").process_group());
      if (round == 20 && IsVictim(comm)) raise(SIGKILL);
      SumAlong(*mesh, "dp");
    }
  } catch (const std::exception& error) {
    return comm.ExplainFailure("a step", error);
  }
}

// Rank 3 is late for rank 1's sum, for which rank 0 waits.
absl::Status ArriveLateInMesh(Communicator& comm) {
  ASSIGN_OR_RETURN(const auto mesh, TwoByTwo(comm));
  try {
    SumAlong(*mesh, "dp");
    if (comm.rank() == 3) absl::SleepFor(absl::Seconds(30));
    if (comm.rank() == 0) Receive(mesh->group("pp").process_group(), 1);
    SumAlong(*mesh, "dp");
  } catch (const std::exception& error) {
    return comm.ExplainFailure("a step", error);
  }
  return absl::OkStatus();
}

// The victim exits while a sum that no other rank joins is in flight.
absl::Status LeaveInTheMiddle(Communicator& comm) {
  ASSIGN_OR_RETURN(const auto mesh, TwoByTwo(comm));
  SumAlong(*mesh, "dp");
  std::vector<at::Tensor> tensors = {at::ones({3})};
  if (IsVictim(comm)) mesh->group("dp").process_group()->allreduce(tensors);
  return absl::OkStatus();
}

// Rank 1 fails in every start but the last: killed in the first, with exit code
// 3 in the later ones.
absl::Status FailUntilTheLastRestart(Communicator& comm) {
  const RankEnv& env = comm.env();
  printf("rank %d, restart %d of %d after: %s\n", env.rank, env.restart_count,
         env.max_restarts, env.restart_cause.c_str());
  if (env.restart_count == env.max_restarts) return SumOfRanks(comm);
  return EndOne(
      comm, env.restart_count == 0 ? [] { raise(SIGKILL); } : [] { _exit(3); });
}

// As in a trainer, all ranks end once any one of them has received a signal.
absl::Status ReduceUntilPreempted(Communicator& comm) {
  for (;;) {
    at::Tensor tensor = at::full({1}, Preempted() ? 1.0 : 0.0, comm.device());
    RETURN_IF_ERROR(comm.AllReduce(tensor, ReduceOp::kMax));
    if (tensor.item<double>() > 0) return absl::CancelledError("preempted");
  }
}

absl::Status CheckVariants(Communicator& comm) {
  try {
    CheckMpi(*comm.process_group());
  } catch (const std::exception& error) {
    return absl::InternalError(PlainMessage(error));
  }
  return comm.Barrier();
}

// Sends control messages, which use reserved tags.
absl::Status SendControlMessages(Communicator& comm) {
  try {
    const auto control = MakeGroupControl(comm.process_group());
    const int last = comm.world_size() - 1;
    if (comm.rank() == 0) control->Send(7, last);
    if (comm.rank() == last) printf("received %.0f\n", control->Receive(0));
    for (const std::string& text : GatherText(&comm, "a text"))
      printf("gathered %s\n", text.c_str());
    std::vector<at::Tensor> message = {at::ones({1})};
    comm.process_group()->send(message, last, /*tag=*/1 << 30);
  } catch (const std::exception& error) {
    return absl::InternalError(PlainMessage(error));
  }
  return absl::OkStatus();
}

using StorePtr = c10::intrusive_ptr<c10d::Store>;

BackendRequest RequestOf(const RankEnv& env, StorePtr store,
                         absl::Duration connect_timeout) {
  BackendRequest request;
  request.env = env;
  request.place.name = "other";
  request.place.rank = env.rank;
  for (int rank = 0; rank < env.world_size; ++rank)
    request.place.ranks.push_back(rank);
  request.store = std::move(store);
  request.connect_timeout = connect_timeout;
  return request;
}

// Rank 1 publishes its arrival for a second group but never creates it, so MPI
// blocks rank 0 in the group's creation. Rank 0's collective in the first group
// and the creation must both time out.
absl::Status StopInGroupCreation(Communicator& comm) {
  const StorePtr store = c10::make_intrusive<c10d::FileStore>(
      absl::GetFlag(FLAGS_file_store) + ".other", comm.world_size());
  if (comm.rank() == 1) {
    store->set("arrived/1", std::vector<uint8_t>());
    absl::SleepFor(absl::Seconds(30));
    return absl::OkStatus();
  }
  absl::Status made;
  std::thread creation([&] {
    made = MakeMpi(RequestOf(comm.env(), store, absl::Seconds(4))).status();
  });
  absl::SleepFor(absl::Seconds(1));
  at::Tensor tensor = at::ones({3});
  const absl::Status reduced = comm.AllReduce(tensor);
  fprintf(stderr, "%s\n", std::string(reduced.message()).c_str());
  creation.join();
  return made;
}

// The last rank is killed; the others continue in a group without it, until the
// launcher ends them.
absl::Status GoOnWithoutTheLastRank(Communicator& comm) {
  std::vector<int> others;
  for (int rank = 0; rank + 1 < comm.world_size(); ++rank)
    others.push_back(rank);
  const bool is_last = comm.rank() + 1 == comm.world_size();
  if (is_last) others = {comm.rank()};
  ASSIGN_OR_RETURN(const Group group, comm.NewGroup("others", others));
  RETURN_IF_ERROR(comm.Barrier());
  if (is_last) {
    absl::SleepFor(absl::Milliseconds(200));  // others may still need it
    raise(SIGKILL);
  }
  try {
    for (int i = 0; i < 4; ++i) {
      std::vector<at::Tensor> tensors = {at::ones({3})};
      if (comm.rank() == 0) absl::SleepFor(absl::Milliseconds(300));
      group.process_group()->allreduce(tensors)->wait();
    }
  } catch (const std::exception& error) {
    return absl::InternalError(PlainMessage(error));
  }
  printf("rank %d went on\n", comm.rank());
  return absl::OkStatus();
}

class LostStore : public c10d::HashStore {
  void set(const std::string&, const std::vector<uint8_t>&) override {
    throw std::runtime_error("the store is lost");
  }
};

// Starts MPI twice, as two groups would, before any communicator exists.
absl::Status StartMpiWithALostStore(const RankEnv& env) {
  absl::Status status;
  for (int i = 0; i < 2; ++i) {
    status = MakeMpi(RequestOf(env, c10::make_intrusive<LostStore>(),
                               absl::Seconds(4)))
                 .status();
    printf("%s\n", std::string(status.message()).c_str());
  }
  return status;
}

// Two groups of all ranks call at the same time, each from its own thread.
absl::Status MixTwoGroups(Communicator& comm) {
  std::vector<int> reversed;
  for (int rank = comm.world_size(); rank-- > 0;) reversed.push_back(rank);
  ASSIGN_OR_RETURN(const Group other, comm.NewGroup("reversed", reversed));
  const auto mix = [](const GroupPtr& group, uint32_t seed) {
    try {
      MixCalls(*group, absl::GetFlag(FLAGS_calls), seed);
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", PlainMessage(error).c_str());
      _exit(1);
    }
  };
  std::thread second(mix, other.process_group(), 2);
  mix(comm.process_group(), 1);
  second.join();
  return comm.Barrier();
}

absl::Status Play(const std::string& scenario, Communicator& comm) {
  printf("pid %d\n", getpid());
  if (scenario == "all_reduce") return SumOfRanks(comm);
  if (scenario == "all") return UseAll(comm);
  if (scenario == "variants") return CheckVariants(comm);
  if (scenario == "mixed") return MixTwoGroups(comm);
  if (scenario == "control") return SendControlMessages(comm);
  if (scenario == "go_on") return GoOnWithoutTheLastRank(comm);
  if (scenario == "stop_in_group_creation") return StopInGroupCreation(comm);
  if (scenario == "forever") return ReduceForever(comm);
  if (scenario == "exit") return EndOne(comm, [] { _exit(3); });
  if (scenario == "kill") return EndOne(comm, [] { raise(SIGKILL); });
  if (scenario == "stop") return EndOne(comm, [] { raise(SIGSTOP); });
  if (scenario == "stop_at_the_end") return StopOneAtTheEnd(comm);
  if (scenario == "own_error") return FailByItself(comm);
  if (scenario == "late") return ArriveLate(comm);
  if (scenario == "different_calls") return CallDifferent(comm);
  if (scenario == "different_shapes") return ReduceDifferentShapes(comm);
  if (scenario == "kill_in_chain") return KillInChain(comm);
  if (scenario == "kill_in_mesh") return KillInMesh(comm);
  if (scenario == "late_in_mesh") return ArriveLateInMesh(comm);
  if (scenario == "leave_in_the_middle") return LeaveInTheMiddle(comm);
  if (scenario == "restart") return FailUntilTheLastRestart(comm);
  if (scenario == "preempt_in_vain") return ReduceForever(comm);
  if (scenario == "preempt") return ReduceUntilPreempted(comm);
  if (scenario == "bad_usage") return EndOne(comm, [] { _exit(2); });
  if (scenario == "stubborn") {
    signal(SIGTERM, SIG_IGN);
    return EndOne(comm, [] { _exit(3); });
  }
  if (scenario == "leave") {
    if (comm.rank() == 1) return absl::OkStatus();
    return ReduceForever(comm);
  }
  return absl::InvalidArgumentError("unknown scenario " + scenario);
}

absl::Status Run() {
  CommConfig config;
  config.rendezvous_timeout = absl::GetFlag(FLAGS_rendezvous_timeout);
  config.collective_timeout = absl::GetFlag(FLAGS_collective_timeout);
  config.check_collectives = absl::GetFlag(FLAGS_check_collectives);
  config.file_store = absl::GetFlag(FLAGS_file_store);
  config.device = absl::GetFlag(FLAGS_device);
  config.backend = absl::GetFlag(FLAGS_backend);
  config.poll_gloo = absl::GetFlag(FLAGS_poll_gloo);
  ASSIGN_OR_RETURN(const RankEnv env, ReadRankEnv());
  if (absl::GetFlag(FLAGS_scenario) == "lost_store")
    return StartMpiWithALostStore(env);
  ASSIGN_OR_RETURN(CommunicatorPtr comm, Communicator::Create(env, config));
  return Play(absl::GetFlag(FLAGS_scenario), *comm);
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  rankwise::PrepareRankProcess();
  const bool saves = absl::StartsWith(absl::GetFlag(FLAGS_scenario), "preempt");
  if (absl::GetFlag(FLAGS_nproc) > 1 && !rankwise::InsideLauncher()) {
    rankwise::LaunchConfig config;
    config.nproc = absl::GetFlag(FLAGS_nproc);
    config.log_dir = absl::GetFlag(FLAGS_log_dir);
    config.serves_pmix = absl::GetFlag(FLAGS_backend) == "mpi";
    config.max_restarts = absl::GetFlag(FLAGS_max_restarts);
    config.stop_limit = absl::GetFlag(FLAGS_collective_timeout);
    config.ranks_save_when_preempted = saves;
    if (absl::GetFlag(FLAGS_scenario) == "go_on")
      config.grace = absl::Seconds(60);
    return rankwise::LaunchRanks(config, argc, argv);
  }
  if (saves) rankwise::CatchPreemption();
  const absl::Status status = rankwise::Run();
  if (status.ok()) return 0;
  if (absl::IsCancelled(status)) return rankwise::kPreempted;
  fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  const char* rank = std::getenv("RANK");
  if (rank != nullptr && absl::string_view(rank) == "1") {
    absl::SleepFor(absl::GetFlag(FLAGS_linger));
  }
  return 1;
}
