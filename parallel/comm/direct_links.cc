#include "parallel/comm/direct_links.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "c10/util/Exception.h"
#include "parallel/comm/network.h"
#include "parallel/comm/steady_time.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace rankwise {
namespace {

using Clock = std::chrono::steady_clock;

// What a connecting rank says first. Strangers do not know the secret.
struct Hello {
  uint64_t secret = 0;
  int32_t rank = 0;
  int32_t unused = 0;
};

// Where a rank accepts connections, as it stands in the store.
struct Door {
  std::string address;
  int port = 0;
  uint64_t secret = 0;
};

std::string Key(int rank) { return absl::StrCat("door/", rank); }

void Publish(const Door& door, int rank, c10d::Store& store) {
  const std::string text =
      absl::StrCat(door.address, " ", door.port, " ", door.secret);
  store.set(Key(rank), std::vector<uint8_t>(text.begin(), text.end()));
}

absl::StatusOr<Door> DoorOf(int rank, c10d::Store& store) {
  const std::vector<uint8_t> bytes = store.get(Key(rank));
  const std::string text(bytes.begin(), bytes.end());
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  Door door;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &door.port) ||
      !absl::SimpleAtoi(parts[2], &door.secret)) {
    return absl::InternalError(absl::StrCat("rank ", rank, "'s entry '", text,
                                            "' in the store is no address"));
  }
  door.address = parts[0];
  return door;
}

timeval TimeUntil(const Deadline& deadline) {
  return absl::ToTimeval(std::max(deadline.left(), absl::Milliseconds(1)));
}

absl::Status SystemError(absl::string_view attempted) {
  return absl::UnavailableError(absl::StrCat(attempted, ": ", strerror(errno)));
}

// A connection on which reads and writes block until `deadline`.
absl::StatusOr<int> ConnectTo(const Door& door, const Deadline& deadline) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string where = absl::StrCat(door.address, " port ", door.port);
  if (const int error =
          getaddrinfo(door.address.c_str(), absl::StrCat(door.port).c_str(),
                      &hints, &found);
      error != 0) {
    return absl::UnavailableError(
        absl::StrCat(where, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found,
                                                             freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError("making a socket");
  const timeval timeout = TimeUntil(deadline);  // of connect() too
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
    absl::Status status = SystemError(absl::StrCat("connecting to ", where));
    close(fd);
    return status;
  }
  return fd;
}

absl::StatusOr<int> ConnectToPeer(int rank, int peer, c10d::Store& store,
                                  const Deadline& deadline) {
  absl::StatusOr<Door> door = DoorOf(peer, store);
  if (!door.ok()) return door.status();
  absl::StatusOr<int> fd = ConnectTo(*door, deadline);
  if (!fd.ok()) return fd;
  const Hello hello = {door->secret, rank, 0};
  if (send(*fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
    absl::Status status = SystemError(absl::StrCat("greeting rank ", peer));
    close(*fd);
    return status;
  }
  return fd;
}

// The next connection at `listener`, and who it is from; rank -1: a stranger.
struct Guest {
  int fd = -1;
  int rank = -1;
};

absl::StatusOr<Guest> Accept(int listener, uint64_t secret,
                             const Deadline& deadline) {
  constexpr absl::Duration kToSayHello = absl::Seconds(5);
  int ready = 0;
  do {
    pollfd polled = {listener, POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline.left());
    ready = left_ms > 0 ? poll(&polled, 1, static_cast<int>(left_ms)) : 0;
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) {
    return absl::UnavailableError("a rank of the group did not connect");
  }
  Guest guest;
  guest.fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (guest.fd < 0) return SystemError("accepting a connection");
  const timeval timeout = absl::ToTimeval(kToSayHello);
  setsockopt(guest.fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  Hello hello;
  const ssize_t got = recv(guest.fd, &hello, sizeof(hello), MSG_WAITALL);
  if (got == sizeof(hello) && hello.secret == secret) guest.rank = hello.rank;
  return guest;
}

struct ScopedFd {
  ~ScopedFd() { close(fd); }
  const int fd;
};

// The signed sizes of send() and recv(); -1 where nothing can be moved now.
ssize_t Moved(ssize_t result, int peer) {
  if (result >= 0) return result;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return -1;
  TORCH_CHECK_WITH(DistNetworkError, false, "Connection with rank ", peer,
                   " of the group failed: ", strerror(errno));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DirectLinks>> DirectLinks::Connect(
    int rank, const std::vector<int>& peers, const std::string& address,
    c10d::Store& store, absl::Duration timeout) {
  constexpr absl::Duration kLongest = absl::Hours(24);  // fits poll()
  const Deadline deadline(std::min(timeout, kLongest));
  absl::StatusOr<Listener> listener =
      Listen(/*loopback_only=*/address == "127.0.0.1", /*port=*/0);
  if (!listener.ok()) return listener.status();
  const ScopedFd owner{listener->fd};
  std::random_device random;
  const Door door = {address, listener->port,
                     (uint64_t{random()} << 32) | random()};
  Publish(door, rank, store);

  std::unique_ptr<DirectLinks> links(new DirectLinks());
  size_t to_come = 0;
  for (const int peer : peers) {  // the higher rank connects
    if (peer > rank) {
      ++to_come;
      continue;
    }
    absl::StatusOr<int> fd = ConnectToPeer(rank, peer, store, deadline);
    if (!fd.ok()) return fd.status();
    links->fds_[peer] = *fd;
  }
  while (to_come > 0) {
    absl::StatusOr<Guest> guest = Accept(listener->fd, door.secret, deadline);
    if (!guest.ok()) return guest.status();
    if (guest->rank < 0 ||
        !links->fds_.emplace(guest->rank, guest->fd).second) {
      close(guest->fd);
      continue;
    }
    --to_come;
  }
  for (const auto& [peer, fd] : links->fds_) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return links;
}

DirectLinks::~DirectLinks() {
  for (const auto& [peer, fd] : fds_) close(fd);
}

bool DirectLinks::Step(int peer, Transfer& transfer, Clock::time_point until) {
  const int fd = fds_.at(peer);
  bool moved = false;
  if (!transfer.out.empty()) {
    const ssize_t sent =
        Moved(send(fd, transfer.out.data(), transfer.out.size(),
                   MSG_DONTWAIT | MSG_NOSIGNAL),
              peer);
    if (sent > 0) transfer.out.remove_prefix(sent);
    moved = sent > 0;
  }
  if (!transfer.in.empty()) {
    const ssize_t got = Moved(
        recv(fd, transfer.in.data(), transfer.in.size(), MSG_DONTWAIT), peer);
    TORCH_CHECK_WITH(DistNetworkError, got != 0, "Connection closed by rank ",
                     peer, " of the group");
    if (got > 0) transfer.in.remove_prefix(got);
    moved = moved || got > 0;
  }
  if (moved || transfer.done()) return true;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
      until - Clock::now());
  if (left.count() <= 0) return false;
  pollfd ready = {fd, 0, 0};
  if (!transfer.out.empty()) ready.events |= POLLOUT;
  if (!transfer.in.empty()) ready.events |= POLLIN;
  const timespec timeout = {left.count() / 1000000000,
                            left.count() % 1000000000};
  return ppoll(&ready, 1, &timeout, nullptr) != 0;
}

void DirectLinks::Shutdown() {
  for (const auto& [peer, fd] : fds_) shutdown(fd, SHUT_RDWR);
}

}  // namespace rankwise
