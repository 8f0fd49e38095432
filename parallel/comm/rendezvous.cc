#include "parallel/comm/rendezvous.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/diagnosis/peers.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/launch/interfaces.h"
#include "parallel/launch/network.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/FileStore.hpp"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace rankwise {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// The keys of one start of the ranks, in a store that may outlive the start.
StorePtr JobStore(StorePtr store, int64_t start) {
  return c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat("rankwise/", start), std::move(store));
}

std::string ArrivalKey(int rank) { return absl::StrCat("arrival/", rank); }
std::string ClaimKey(int rank) { return absl::StrCat("claim/", rank); }

c10d::TCPStoreOptions TcpOptions(int port, absl::Duration timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = absl::ToChronoMilliseconds(timeout);
  return options;
}

// Serves a store on `listener`, which accepts connections at `loopback`, where
// the server's own client connects.
StorePtr Serve(const Listener& listener, const std::string& loopback,
               absl::Duration timeout) {
  c10d::TCPStoreOptions options = TcpOptions(listener.port, timeout);
  options.isServer = true;
  options.masterListenFd = listener.fd;
  return c10::make_intrusive<c10d::TCPStore>(loopback, options);
}

StorePtr ConnectTcp(const std::string& host, int port, absl::Duration timeout) {
  return c10::make_intrusive<c10d::TCPStore>(host, TcpOptions(port, timeout));
}

absl::StatusOr<StoreConnection> ServeTcp(const RankEnv& env,
                                         absl::Duration timeout) {
  ASSIGN_OR_RETURN(const std::string loopback, LoopbackAddress());
  // A listener on 127.0.0.1 cannot be reached at 127.0.1.1 or ::1.
  const bool loopback_only = env.master_addr.empty() ||
                             env.master_addr == loopback ||
                             env.master_addr == "localhost";
  absl::StatusOr<Listener> listener = Listen(loopback_only, env.master_port);
  if (absl::IsAlreadyExists(listener.status())) {
    return absl::AlreadyExistsError(absl::StrCat(
        "MASTER_PORT ", env.master_port,
        " is already in use on this machine: another job runs here, or an "
        "earlier one has not ended; choose another MASTER_PORT"));
  }
  if (!listener.ok()) return listener.status();
  return StoreConnection{Serve(*listener, loopback, timeout),
                         ConnectTcp(loopback, listener->port, timeout),
                         /*is_server=*/true};
}

// Whether this process serves the TCP store.
bool Serves(const RankEnv& env) {
  return (env.rank == 0 && !env.store_is_external) || env.master_addr.empty();
}

absl::StatusOr<StoreConnection> OpenTcp(const RankEnv& env,
                                        const RendezvousConfig& config) {
  const absl::Duration timeout = config.timeout;
  if (Serves(env)) return ServeTcp(env, timeout);
  StoreConnection connection = {
      ConnectTcp(env.master_addr, env.master_port, timeout),
      ConnectTcp(env.master_addr, env.master_port, timeout)};
  EndSilentConnections(env.master_port, config.silence);
  return connection;
}

// c10d keeps retrying a file that cannot be opened, and fails obscurely on one
// that is not a store.
absl::Status CheckFile(const std::string& path) {
  // The beginning of a store, possibly still being written: the length of the
  // first key, and the key.
  constexpr absl::string_view kBeginning("\x09\0\0\0refcount/", 13);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot open file store '", path, "': ", strerror(errno)));
  }
  char bytes[kBeginning.size()];
  const ssize_t count = read(fd, bytes, sizeof(bytes));
  close(fd);
  if (count >= 0 &&
      absl::StartsWith(kBeginning, absl::string_view(bytes, count))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", path, "' is not a file store; name a file that does not exist yet"));
}

absl::StatusOr<StoreConnection> OpenFile(const RankEnv& env,
                                         const RendezvousConfig& config) {
  const std::string& path = config.file_store;
  RETURN_IF_ERROR(CheckFile(path));
  return StoreConnection{
      c10::make_intrusive<c10d::FileStore>(path, env.world_size),
      c10::make_intrusive<c10d::FileStore>(path, env.world_size)};
}

// The store's name in messages.
std::string WhereOf(const RankEnv& env, const RendezvousConfig& config) {
  if (!config.file_store.empty()) {
    return absl::StrCat("the file '", config.file_store, "'");
  }
  if (env.master_addr.empty()) return "this process's own store";
  return absl::StrCat("the store at ", env.master_addr, ":", env.master_port);
}

// Opens the store, without the job's prefix (JobStore).
absl::StatusOr<StoreConnection> OpenStores(const RankEnv& env,
                                           const RendezvousConfig& config) {
  try {
    if (!config.file_store.empty()) return OpenFile(env, config);
    return OpenTcp(env, config);
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        "cannot open ", WhereOf(env, config), ": ", PlainMessage(error),
        "; another program may be listening there"));
  }
}

absl::Status Announce(c10d::Store& store, const RankEnv& env,
                      const std::string& where) {
  if (store.add(ClaimKey(env.rank), 1) > 1) {
    return absl::AlreadyExistsError(absl::StrCat(
        "another process has already claimed rank ", env.rank, " in ", where,
        ": two processes have the same rank, or another job uses the same "
        "store, or the file is left over from an earlier one (delete it)"));
  }
  store.set(ArrivalKey(env.rank), absl::StrCat(env.world_size));
  return absl::OkStatus();
}

std::vector<int> MissingRanks(c10d::Store& store, int world_size) {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!store.check({ArrivalKey(rank)})) missing.push_back(rank);
  }
  return missing;
}

absl::Status CheckWorldSizes(c10d::Store& store, const RankEnv& env) {
  for (int rank = 0; rank < env.world_size; ++rank) {
    const std::string theirs = store.get_to_str(ArrivalKey(rank));
    if (theirs != absl::StrCat(env.world_size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the ranks disagree about the world size: rank ", rank, " says ",
          theirs, ", rank ", env.rank, " says ", env.world_size));
    }
  }
  return absl::OkStatus();
}

// Why other ranks cannot find the store that this process serves; "" if its
// address is not known to be wrong.
std::string WrongAddress(const RankEnv& env, const RendezvousConfig& config) {
  if (!config.file_store.empty() || !Serves(env) || env.master_addr.empty()) {
    return "";
  }
  const absl::Status here = CheckIsThisMachine(env.master_addr);
  return here.ok() ? "" : absl::StrCat("MASTER_ADDR ", here.message());
}

// All starts of a job share torchrun's store, and its agents on several hosts
// may count restarts differently: an agent counts one if it sees a rank fail,
// but not if it restarts its ranks because other agents wait for it. Therefore
// rank 0 counts the starts and answers the other ranks' requests.
bool MustAgreeOnStart(const RankEnv& env, const RendezvousConfig& config) {
  return env.launcher == "torchrun" && env.store_is_external &&
         config.file_store.empty();
}

std::string AskKey(int rank) { return absl::StrCat("rankwise/ask/", rank); }
std::string AnswerKey(const std::string& process) {
  return absl::StrCat("rankwise/answer/", process);
}

// Rank 0's side. It may first read a request left by the same rank of an
// earlier start, which the current rank's request then replaces.
class StartCounter {
 public:
  StartCounter(StorePtr store, int world_size)
      : store_(std::move(store)),
        start_(store_->add("rankwise/starts", 1)),
        answered_(world_size) {}

  int64_t start() const { return start_; }

  void Answer() {
    for (size_t rank = 1; rank < answered_.size(); ++rank) {
      const std::string key = AskKey(static_cast<int>(rank));
      if (!store_->check({key})) continue;
      const std::string process = store_->get_to_str(key);
      if (answered_[rank] == process) continue;
      store_->set(AnswerKey(process), absl::StrCat(start_));
      answered_[rank] = process;
    }
  }

 private:
  const StorePtr store_;
  const int64_t start_;
  std::vector<std::string> answered_;  // by rank: the last process that asked
};

absl::StatusOr<int64_t> AskForStart(c10d::Store& store, const RankEnv& env,
                                    const Deadline& deadline) {
  const std::string process =
      absl::StrCat(env.rank, "/", getpid(), "/", absl::GetCurrentTimeNanos());
  store.set(AskKey(env.rank), process);
  while (!store.check({AnswerKey(process)})) {
    if (deadline.passed()) {
      return absl::DeadlineExceededError(
          "rank 0 has not connected to torchrun's store; see what it prints");
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  int64_t start = 0;
  if (absl::SimpleAtoi(store.get_to_str(AnswerKey(process)), &start))
    return start;
  return absl::InternalError(
      "rank 0's answer in torchrun's store is not a number");
}

absl::Status AwaitAll(c10d::Store& store, StartCounter* counter,
                      const RankEnv& env, const Deadline& deadline,
                      const RendezvousConfig& config,
                      const std::string& where) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < env.world_size; ++rank) {
    keys.push_back(ArrivalKey(rank));
  }
  absl::Duration pause = absl::Milliseconds(2);
  while (!store.check(keys) && !deadline.passed()) {
    if (counter != nullptr) counter->Answer();
    absl::SleepFor(std::min(pause, deadline.left()));
    pause = std::min(pause * 2, absl::Milliseconds(100));
  }
  const std::vector<int> missing = MissingRanks(store, env.world_size);
  if (missing.empty()) return CheckWorldSizes(store, env);
  const std::string absent = absl::StrCat(
      missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "),
      missing.size() == 1 ? " has" : " have", " not arrived at ", where,
      " within ", absl::FormatDuration(config.timeout));
  ReportBlame(store, env.rank, {{missing.front(), absent}});
  const std::string wrong_address = WrongAddress(env, config);
  if (!wrong_address.empty()) {
    return absl::DeadlineExceededError(absl::StrCat(
        wrong_address, ", where rank 0 serves the store, and ", absent,
        "; set MASTER_ADDR on every rank to the address of rank 0's machine"));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      absent,
      "; see whether that many processes were started and what they print"));
}

// Takes a connection to the whole store; returns one to the keys of this start.
absl::StatusOr<StoreConnection> MeetIn(StoreConnection connection,
                                       const RankEnv& env,
                                       const Deadline& deadline,
                                       const RendezvousConfig& config,
                                       const std::string& where) {
  try {
    // A store that rank 0 serves is not used by later starts.
    const bool outlives = env.store_is_external || !config.file_store.empty();
    int64_t start = outlives ? env.restart_count : 0;
    std::optional<StartCounter> counter;
    if (MustAgreeOnStart(env, config)) {
      if (env.rank == 0) {
        start = counter.emplace(connection.store, env.world_size).start();
      } else {
        ASSIGN_OR_RETURN(start, AskForStart(*connection.store, env, deadline));
      }
    }
    for (StorePtr* store : {&connection.store, &connection.second_store})
      *store = JobStore(*store, start);
    RETURN_IF_ERROR(Announce(*connection.store, env, where));
    RETURN_IF_ERROR(AwaitAll(*connection.store,
                             counter.has_value() ? &*counter : nullptr, env,
                             deadline, config, where));
    return connection;
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("lost ", where, ": ", PlainMessage(error)));
  }
}

// Returns the result of `action`, or nullopt after `patience`, since c10d waits
// for answers without a limit. `action` then continues; it must own the objects
// it uses.
template <typename Action>
auto ResultWithin(absl::Duration patience, Action action) {
  using Result = decltype(action());
  const auto result = std::make_shared<std::optional<Result>>();
  const bool ended = RunWithin(
      patience, [result, action = std::move(action)] { *result = action(); });
  return ended ? std::move(*result) : std::optional<Result>();
}

absl::StatusOr<StoreConnection> Meet(const RankEnv& env,
                                     const RendezvousConfig& config) {
  // Added to the timeout, so that ranks can still read which are missing.
  constexpr absl::Duration kForAnswers = absl::Seconds(5);
  constexpr absl::Duration kToConnect = absl::Seconds(1);  // at least
  const Deadline deadline(config.timeout);
  const std::string where = WhereOf(env, config);
  if (config.file_store.empty() && !Serves(env)) {
    if (IsLoopbackAddress(env.master_addr))
      RETURN_IF_ERROR(LoopbackAddress().status());
    RETURN_IF_ERROR(
        WaitForListener(env.master_addr, env.master_port, config.timeout));
  }
  auto raw = ResultWithin(std::max(deadline.left(), kToConnect),
                          [env, config] { return OpenStores(env, config); });
  if (!raw.has_value()) {
    return absl::DeadlineExceededError(absl::StrCat(
        where, " has accepted a connection and not answered within ",
        absl::FormatDuration(config.timeout),
        ": another program is probably listening there; choose another "
        "MASTER_PORT"));
  }
  ASSIGN_OR_RETURN(const StoreConnection connection, *std::move(raw));
  auto met =
      ResultWithin(std::max(deadline.left(), kToConnect) + kForAnswers,
                   [connection, env, deadline, config, where] {
                     return MeetIn(connection, env, deadline, config, where);
                   });
  if (!met.has_value()) {
    return absl::UnavailableError(absl::StrCat(
        where,
        " has stopped answering; see what the process that serves it, rank 0 "
        "or the launcher, does"));
  }
  return *std::move(met);
}

}  // namespace

absl::StatusOr<StoreConnection> Rendezvous(const RankEnv& env,
                                           const RendezvousConfig& config) {
  absl::StatusOr<StoreConnection> connection = Meet(env, config);
  if (connection.ok()) return connection;
  const absl::Status& status = connection.status();
  return absl::Status(status.code(),
                      absl::StrCat("rendezvous of rank ", env.rank, " of ",
                                   env.world_size, ": ", status.message()));
}

absl::StatusOr<HostedStore> HostStore(int restart) {
  ASSIGN_OR_RETURN(const std::string loopback, LoopbackAddress());
  ASSIGN_OR_RETURN(Listener listener, Listen(/*loopback_only=*/true, 0));
  try {
    HostedStore hosted;
    hosted.store =
        JobStore(Serve(listener, loopback, absl::Seconds(30)), restart);
    hosted.address = loopback;
    hosted.port = listener.port;
    return hosted;
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve a store on the loopback interface: ",
                     PlainMessage(error)));
  }
}

}  // namespace rankwise
