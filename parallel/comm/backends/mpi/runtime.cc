// Start and end of MPI in a process.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "c10/util/Exception.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/mpi/engine.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/launch/interfaces.h"
#include "records/usable_resources.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Keeps the user's choice. OpenMPI's default for its non-blocking all-reduce
// reduces on one rank alone if there are two or three: at 2 ranks and 1 MiB
// that takes twice as long.
void ChooseAlgorithms() {
  constexpr char kRabenseifner[] = "3";
  setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", kRabenseifner,
         /*replace=*/0);
}

MpiEngine* running = nullptr;

std::string ProcessKey(int rank) { return absl::StrCat("process/", rank); }

}  // namespace

absl::StatusOr<MpiEngine*> MpiEngine::Start(const BackendRequest& request) {
  ASSIGN_OR_RETURN(MpiApi* const mpi, LoadMpi());
  // MPI can be started only once per process: the engine is never freed.
  static MpiEngine& engine = *new MpiEngine(*mpi);
  static const auto& started = *new absl::Status([&]() -> absl::Status {
    try {
      return engine.Initialise(request);
    } catch (const std::exception& error) {  // never started a second time
      return absl::UnavailableError(PlainMessage(error));
    }
  }());
  RETURN_IF_ERROR(started);
  return &engine;
}

MpiEngine* MpiEngine::Running() { return running; }

absl::Status MpiEngine::Initialise(const BackendRequest& request) {
  ChooseAlgorithms();
  int provided = 0;
  mpi_.Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (provided < MPI_THREAD_SERIALIZED) {
    return absl::FailedPreconditionError(
        "this OpenMPI was built without support for threads");
  }
  int rank = 0, size = 1;
  mpi_.Comm_rank(mpi_.world, &rank);
  mpi_.Comm_size(mpi_.world, &size);
  if (rank != request.env.rank || size != request.env.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this process is rank ", rank, " of ", size, " in MPI but rank ",
        request.env.rank, " of ", request.env.world_size,
        " in the job; use only one launcher: --nproc, mpirun or srun "
        "--mpi=pmix"));
  }
  mpi_.CreateReductions();
  ReadLargestTag();
  has_processors_ = UsableCores(WatchRanksOfThisMachine(request)) >=
                    request.env.local_world_size;
  thread_ = std::thread([this] { Run(); });
  running = this;
  std::atexit([] { running->Finalise(); });
  return absl::OkStatus();
}

void MpiEngine::ReadLargestTag() {
  int* value = nullptr;
  int is_set = 0;
  mpi_.Check(mpi_.Comm_get_attr(mpi_.world, MPI_TAG_UB, &value, &is_set),
             "MPI_Comm_get_attr");
  if (is_set) mpi_.largest_tag = *value;
}

std::vector<pid_t> MpiEngine::WatchRanksOfThisMachine(
    const BackendRequest& request) {
  std::vector<pid_t> processes;
  const std::string here = NetworkIdentity();
  request.store->set(ProcessKey(request.env.rank),
                     absl::StrCat(here, "/", getpid()));
  for (int rank = 0; rank < request.env.world_size; ++rank) {
    if (rank == request.env.rank) continue;
    const std::vector<std::string> parts =
        absl::StrSplit(request.store->get_to_str(ProcessKey(rank)), '/');
    int pid = 0;
    if (parts.size() != 2 || parts[0] != here ||
        !absl::SimpleAtoi(parts[1], &pid)) {
      continue;
    }
    processes.push_back(pid);
    const auto process = syscall(SYS_pidfd_open, pid, /*flags=*/0);
    if (process >= 0) watched_.emplace_back(rank, static_cast<int>(process));
  }
  return processes;
}

std::shared_ptr<MpiGroup> MpiEngine::NewGroup(const BackendRequest& request) {
  auto group = std::make_shared<MpiGroup>();
  group->rank_in_job = request.env.rank;
  group->ranks = request.place.ranks;
  group->timeout = absl::ToChronoMilliseconds(request.collective_timeout);
  group->store = request.store;
  // MPI would wait forever for ranks that do not arrive.
  const auto key = [](int rank) { return absl::StrCat("arrived/", rank); };
  request.store->set(key(request.place.rank), std::string());
  std::vector<std::string> all;
  for (int rank = 0; rank < request.place.size(); ++rank) {
    all.push_back(key(rank));
  }
  request.store->wait(all, absl::ToChronoMilliseconds(request.connect_timeout));
  group->comm = ConnectWithin(request.connect_timeout, request.place.ranks);
  return group;
}

MPI_Comm MpiEngine::ConnectWithin(absl::Duration patience,
                                  const std::vector<int>& ranks) {
  struct Result {
    MPI_Comm comm = nullptr;
    std::exception_ptr error;
  };
  const auto result = std::make_shared<Result>();
  const bool ended = RunWithin(patience, [this, result, ranks] {
    try {
      result->comm = Connect(ranks);
    } catch (const std::exception&) {
      result->error = std::current_exception();
    }
  });
  if (!ended) {
    C10_THROW_ERROR(DistBackendError,
                    absl::StrCat("MPI_Comm_create_group has not returned "
                                 "within ",
                                 absl::FormatDuration(patience)));
  }
  if (result->error != nullptr) std::rethrow_exception(result->error);
  return result->comm;
}

MPI_Comm MpiEngine::Connect(const std::vector<int>& ranks) {
  const auto lock = Lock();
  MPI_Group world = nullptr, members = nullptr;
  MPI_Comm comm = nullptr;
  mpi_.Check(mpi_.Comm_group(mpi_.world, &world), "MPI_Comm_group");
  mpi_.Check(mpi_.Group_incl(world, static_cast<int>(ranks.size()),
                             ranks.data(), &members),
             "MPI_Group_incl");
  mpi_.Check(mpi_.Comm_create_group(mpi_.world, members, /*tag=*/0, &comm),
             "MPI_Comm_create_group");
  mpi_.Group_free(&members);
  mpi_.Group_free(&world);
  mpi_.Comm_set_errhandler(comm, mpi_.errors_return);
  return comm;
}

std::string WhyNoMpi() {
  const auto loaded = LoadMpi();
  return loaded.ok() ? "" : std::string(loaded.status().message());
}

void MpiEngine::Finalise() {
  stopping_ = true;
  {
    const std::lock_guard lock(sleep_);
    wake_.notify_one();
  }
  thread_.join();
  // After a failure, ranks would wait for each other in MPI_Finalize. An MPI
  // call that never returns never releases the lock, hence try_to_lock.
  const std::unique_lock calls(calls_, std::try_to_lock);
  const std::lock_guard works(works_);
  if (calls && abandoned_.empty() && in_flight_.empty()) mpi_.Finalize();
}

}  // namespace rankwise
