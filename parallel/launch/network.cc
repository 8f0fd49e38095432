#include "parallel/launch/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"
#include "parallel/launch/interfaces.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// Result of getaddrinfo: addresses, or its error code.
struct Resolution {
  int error = 0;
  Addresses addresses{nullptr, freeaddrinfo};
};

Resolution Resolve(const std::string& host, int port, int socket_type) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  Resolution resolution;
  resolution.error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (resolution.error == 0) resolution.addresses.reset(found);
  return resolution;
}

// Whether `is_it` holds for one of the addresses; stops at the first.
template <typename Predicate>
bool AnyOf(const Resolution& resolution, Predicate is_it) {
  for (const addrinfo* address = resolution.addresses.get(); address != nullptr;
       address = address->ai_next) {
    if (is_it(*address)) return true;
  }
  return false;
}

// Returns 0, or the errno of connecting to `address`.
int TryConnect(const addrinfo& address, absl::Duration timeout) {
  const ScopedFd fd(
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return errno;
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd ready = {fd.get(), POLLOUT, 0};
  const int wait_ms = std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout));
  const int events = poll(&ready, 1, wait_ms);
  if (events < 0) return errno;
  if (events == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

// Results of one attempt to connect.
struct Attempt {
  int resolve_error = 0;
  int connect_error = 0;
  bool connected = false;
};

Attempt TryOnce(const std::string& host, int port, absl::Duration timeout) {
  Attempt attempt;
  const Resolution resolution = Resolve(host, port, SOCK_STREAM);
  attempt.resolve_error = resolution.error;
  attempt.connected = AnyOf(resolution, [&](const addrinfo& address) {
    const int error = TryConnect(address, timeout);
    // A refusal is more informative than failures of the host's other
    // addresses.
    if (attempt.connect_error != ECONNREFUSED) attempt.connect_error = error;
    return error == 0;
  });
  return attempt;
}

absl::Status Explain(const Attempt& attempt, const std::string& host, int port,
                     absl::Duration waited) {
  const std::string after =
      absl::StrCat(" (tried for ", absl::FormatDuration(waited), ")");
  if (attempt.resolve_error != 0) {
    return absl::UnavailableError(absl::StrCat(
        "MASTER_ADDR '", host, "' does not resolve to an address: ",
        gai_strerror(attempt.resolve_error), after,
        "; set it to the host name or IP address of rank 0's machine"));
  }
  if (attempt.connect_error == ECONNREFUSED) {
    return absl::UnavailableError(absl::StrCat(
        "nothing listens at MASTER_ADDR:MASTER_PORT = ", host, ":", port,
        ": connection refused", after,
        "; rank 0 is not running there, or the port is not the one it uses"));
  }
  return absl::UnavailableError(absl::StrCat(
      "MASTER_ADDR ", host, " (port ", port,
      ") cannot be reached: ", strerror(attempt.connect_error), after,
      "; check the address, the network and the firewall between the "
      "machines"));
}

absl::Status SocketError(absl::string_view attempted) {
  const int error = errno;
  const std::string message = absl::StrCat(attempted, ": ", strerror(error));
  return error == EADDRINUSE ? absl::AlreadyExistsError(message)
                             : absl::UnavailableError(message);
}

// The port of the socket's own end (getsockname) or of its peer (getpeername);
// -1 if it has none.
template <typename GetName>
int PortOf(int fd, GetName get_name) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  if (get_name(fd, name, &length) != 0) return -1;
  if (name->sa_family != AF_INET && name->sa_family != AF_INET6) return -1;
  // sin_port and sin6_port have the same offset.
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

absl::StatusOr<Listener> ListenOn(const sockaddr* address, socklen_t length,
                                  int port) {
  const std::string attempted = absl::StrCat("listening at port ", port);
  ScopedFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return SocketError(attempted);
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(fd.get(), address, length) != 0) return SocketError(attempted);
  if (listen(fd.get(), SOMAXCONN) != 0) return SocketError(attempted);
  const int bound_port = PortOf(fd.get(), getsockname);
  if (bound_port < 0) return SocketError(attempted);
  return Listener{fd.release(), bound_port};
}

}  // namespace

absl::StatusOr<Listener> Listen(bool loopback_only, int port) {
  sockaddr_in ipv4 = {};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  ipv4.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  sockaddr_in6 ipv6 = {};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(port);
  ipv6.sin6_addr = loopback_only ? in6addr_loopback : in6addr_any;
  const auto listen4 = [&] {
    return ListenOn(reinterpret_cast<sockaddr*>(&ipv4), sizeof(ipv4), port);
  };
  const auto listen6 = [&] {
    return ListenOn(reinterpret_cast<sockaddr*>(&ipv6), sizeof(ipv6), port);
  };
  if (loopback_only) {
    ASSIGN_OR_RETURN(const std::string loopback, LoopbackAddress());
    return loopback == "::1" ? listen6() : listen4();
  }
  absl::StatusOr<Listener> both = listen6();
  if (both.ok() || absl::IsAlreadyExists(both.status())) return both;
  return listen4();  // a machine without IPv6
}

absl::Status WaitForListener(const std::string& host, int port,
                             absl::Duration timeout) {
  constexpr absl::Duration kLongestResolving = absl::Seconds(10);
  constexpr absl::Duration kLongestConnecting = absl::Seconds(5);
  const SteadyTime start = SteadyNow();
  absl::Duration pause = absl::Milliseconds(20);
  while (true) {
    const absl::Duration left = timeout - ElapsedSince(start);
    const Attempt attempt =
        TryOnce(host, port, std::min(left, kLongestConnecting));
    if (attempt.connected) return absl::OkStatus();
    const absl::Duration waited = ElapsedSince(start);
    const bool hopeless =
        attempt.resolve_error != 0 && waited >= kLongestResolving;
    if (hopeless || waited + pause >= timeout) {
      return Explain(attempt, host, port,
                     absl::Trunc(waited, absl::Milliseconds(100)));
    }
    absl::SleepFor(pause);
    pause = std::min(pause * 2, absl::Milliseconds(500));
  }
}

void EndSilentConnections(int port, absl::Duration patience) {
  // Probes idle connections, so that their silence is detected, too.
  constexpr int kOn = 1, kProbeSeconds = 2;
  const auto patience_ms =
      static_cast<unsigned>(absl::ToInt64Milliseconds(patience));
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", error)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &fd) ||
        PortOf(fd, getpeername) != port) {
      continue;
    }
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof(kOn));
    for (const int option : {TCP_KEEPIDLE, TCP_KEEPINTVL}) {
      setsockopt(fd, IPPROTO_TCP, option, &kProbeSeconds,
                 sizeof(kProbeSeconds));
    }
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms,
               sizeof(patience_ms));
  }
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host) {
  constexpr int kAnyPort = 9;  // no packet is sent
  const Resolution resolution = Resolve(host, kAnyPort, SOCK_DGRAM);
  std::string local_address;
  const bool found = AnyOf(resolution, [&](const addrinfo& address) {
    const ScopedFd fd(socket(address.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local = {};
    auto* const name = reinterpret_cast<sockaddr*>(&local);
    socklen_t length = sizeof(local);
    char text[NI_MAXHOST];
    if (fd.get() < 0 ||
        connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0 ||
        getsockname(fd.get(), name, &length) != 0 ||
        getnameinfo(name, length, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
      return false;
    }
    local_address = text;
    return true;
  });
  if (found) return local_address;
  return absl::UnavailableError(
      absl::StrCat("no network interface leads to ", host));
}

absl::Status CheckIsThisMachine(const std::string& host) {
  const Resolution resolution = Resolve(host, /*port=*/0, SOCK_DGRAM);
  if (resolution.error != 0) {
    return absl::NotFoundError(absl::StrCat(
        "'", host, "' does not resolve to an address on this machine: ",
        gai_strerror(resolution.error)));
  }
  const bool may_be_here = AnyOf(resolution, [](const addrinfo& address) {
    const ScopedFd fd(socket(address.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return fd.get() < 0 ||
           bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 ||
           errno != EADDRNOTAVAIL;
  });
  if (may_be_here) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(host, " is not an address of this machine"));
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

bool IsLoopbackAddress(const std::string& address) {
  return address == "localhost" || address == "::1" ||
         absl::StartsWith(address, "127.");
}

}  // namespace rankwise
