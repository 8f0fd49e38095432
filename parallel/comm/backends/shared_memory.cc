#include "parallel/comm/backends/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "ATen/ops/from_blob.h"
#include "ATen/ops/maximum.h"
#include "ATen/ops/minimum.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace rankwise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSlotBytes = int64_t{1} << 20;
// Peers may still read a slot while the next one is written.
constexpr uint32_t kBanks = 2;
constexpr int64_t kPieceBytes = int64_t{1} << 16;
// Maximum messages from one rank to another before the receiver notices them.
constexpr uint32_t kNotes = 1024;
// Address space reserved for the messages that one rank sends; only used pages
// take memory. Large groups reserve less per rank, since a process has 128 TiB
// for all of its groups.
constexpr int64_t kMostRoomsBytes = int64_t{1} << 34;
constexpr int64_t kFewestRoomsBytes = int64_t{1} << 30;
constexpr int64_t kRoomsBytesOfGroup = int64_t{1} << 38;
constexpr int64_t kAlignment = 64;
// Number of checks, with a yield after each, before the first sleep.
constexpr int kLooks = 100;
// Interval between checks that the peers still live.
constexpr std::chrono::milliseconds kPatience(20);

void Wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SleepUnlessChanged(std::atomic<uint32_t>& word, uint32_t value) {
  const timespec patience = {
      .tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kPatience).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &patience, nullptr, 0);
}

void Check(bool ok, const char* what) {
  TORCH_CHECK(ok, "shared memory: ", what, ": ", std::strerror(errno),
              "; --backend=gloo needs none");
}

void Copy(const at::Tensor& into, const at::Tensor& from) {
  std::memcpy(into.data_ptr(), from.data_ptr(), into.nbytes());
}

constexpr char kEarlierFailure[] = "an earlier collective failed";

[[noreturn]] void Throw(const std::string& call, const std::string& why) {
  C10_THROW_ERROR(DistBackendError,
                  absl::StrCat("shared memory: ", call, ": ", why));
}

}  // namespace

void ReduceInto(const at::Tensor& into, const at::Tensor& from,
                const c10d::ReduceOp& op) {
  const int64_t piece = kPieceBytes / into.element_size();
  for (int64_t begin = 0; begin < into.numel(); begin += piece) {
    const int64_t count = std::min(piece, into.numel() - begin);
    at::Tensor x = into.narrow(0, begin, count);
    const at::Tensor y = from.narrow(0, begin, count);
    if (op == c10d::ReduceOp::SUM) {
      x.add_(y);
    } else if (op == c10d::ReduceOp::PRODUCT) {
      x.mul_(y);
    } else if (op == c10d::ReduceOp::MAX) {
      at::maximum_out(x, x, y);
    } else {
      at::minimum_out(x, x, y);
    }
  }
}

struct SharedMemory::Call {
  enum Kind : uint32_t { kAllReduce, kAllGather, kReduceScatter };

  Call(Kind any_kind, const at::Tensor& data)
      : kind(any_kind),
        dtype(data.scalar_type()),
        bytes(static_cast<int64_t>(data.nbytes())) {}
  bool operator==(const Call&) const = default;
  std::string Text() const {
    static constexpr const char* kNames[] = {"all_reduce", "all_gather",
                                             "reduce_scatter"};
    return absl::StrCat(kNames[kind], " of ", bytes, " bytes of ",
                        c10::toString(dtype));
  }

  Kind kind;
  at::ScalarType dtype;
  int64_t bytes;
};

// State of one rank, visible to the others; initially all zero.
struct alignas(64) SharedMemory::Seat {
  std::atomic<uint32_t> epoch;     // barriers reached by the rank
  std::atomic<uint32_t> sleepers;  // peers asleep until `epoch` changes
  std::atomic<bool> left;
  std::atomic<bool> gave_up;
  Call calls[kBanks];
};

struct SharedMemory::Message {
  // "a message to rank 1 of 8 bytes"
  std::string Text() const {
    return absl::StrCat("a message ", direction, " rank ", rank, " of ", bytes,
                        " bytes");
  }

  const char* direction;  // to or from
  int rank;
  int64_t bytes;
};

// Messages from one rank to another; initially all zero.
struct alignas(kAlignment) SharedMemory::Mailbox {
  std::atomic<uint32_t> sent;      // messages so far
  std::atomic<uint32_t> noticed;   // of them, seen by the receiver
  std::atomic<uint32_t> sleepers;  // receivers asleep until `sent` changes
  Note notes[kNotes];              // message i is at [i % kNotes]
};

// Header of a message.
struct alignas(kAlignment) SharedMemory::Room {
  void* message() { return this + 1; }

  std::atomic<bool> taken;  // received: the room may be reused
  int64_t room_bytes;       // capacity
  int64_t bytes;            // size of the message
};

SharedMemory::SharedMemory(c10d::Store& store, const std::vector<int>& ranks,
                           int place)
    : ranks_(ranks),
      place_(place),
      bytes_(ranks.size() *
             (sizeof(Seat) + ranks.size() * sizeof(Mailbox) +
              kBanks * kSlotBytes + static_cast<size_t>(RoomsBytes()))),
      incoming_(ranks.size()) {
  const auto key = [](size_t rank) { return absl::StrCat("memory/", rank); };
  if (place == 0) {
    file_ = memfd_create("rankwise", MFD_CLOEXEC);
    Check(file_ >= 0 && ftruncate(file_, static_cast<off_t>(bytes_)) == 0,
          "cannot be made");
    Map(file_);
  } else {
    const std::string path = absl::StrCat("/proc/", store.get_to_str(key(0)));
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    Check(file >= 0, path.c_str());
    Map(file);
    close(file);
  }
  // The first rank owns the file, and stays until all others have mapped it.
  const std::string own = absl::StrCat(getpid(), "/fd/", file_);
  store.set(key(place), std::vector<uint8_t>(own.begin(), own.end()));
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string peer = store.get_to_str(key(i));
    processes_.push_back(static_cast<int>(
        syscall(SYS_pidfd_open, std::atoi(peer.c_str()), /*flags=*/0)));
  }
}

int64_t SharedMemory::RoomsBytes() const {
  return std::clamp(kRoomsBytesOfGroup / size(), kFewestRoomsBytes,
                    kMostRoomsBytes);
}

void SharedMemory::Map(int file) {
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, file, 0);
  Check(memory != MAP_FAILED, "cannot be mapped");
  madvise(memory, bytes_, MADV_DONTDUMP);  // most of it is never used
  memory_ = static_cast<std::byte*>(memory);
}

SharedMemory::~SharedMemory() {
  Seat& own = SeatOf(place_);
  own.left = true;
  Wake(own.epoch);
  munmap(memory_, bytes_);
  if (file_ >= 0) close(file_);
  for (const int process : processes_) {
    if (process >= 0) close(process);
  }
}

bool SharedMemory::Carries(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  using Op = c10d::ReduceOp;
  const bool reduces =
      op == Op::SUM || op == Op::PRODUCT || op == Op::MIN || op == Op::MAX;
  const at::ScalarType dtype = tensor.scalar_type();
  return reduces && tensor.is_cpu() && tensor.layout() == at::kStrided &&
         (at::isFloatingType(dtype) || at::isIntegralType(dtype, false));
}

SharedMemory::Seat& SharedMemory::SeatOf(int place) const {
  return reinterpret_cast<Seat*>(memory_)[place];
}

// Layout: seats, mailboxes, slots, rooms.
SharedMemory::Mailbox& SharedMemory::MailboxOf(int from, int to) const {
  std::byte* const mailboxes = memory_ + size() * sizeof(Seat);
  return reinterpret_cast<Mailbox*>(mailboxes)[from * size() + to];
}

SharedMemory::Room& SharedMemory::RoomAt(int from, int64_t offset) const {
  std::byte* const rooms = memory_ + bytes_ - (size() - from) * RoomsBytes();
  return *reinterpret_cast<Room*>(rooms + offset);
}

at::Tensor SharedMemory::Slot(int place, const at::Tensor& like, int64_t begin,
                              int64_t count) const {
  const int64_t slot = int64_t{bank_} * size() + place;
  const size_t before = size() * (sizeof(Seat) + size() * sizeof(Mailbox));
  std::byte* const data =
      memory_ + before + slot * kSlotBytes + begin * like.element_size();
  return at::from_blob(data, {count}, like.options());
}

void SharedMemory::AllReduce(const at::Tensor& data, const c10d::ReduceOp& op,
                             Timeout timeout) {
  const Call call{Call::kAllReduce, data};
  const int64_t room = kSlotBytes / data.element_size();
  for (int64_t begin = 0; begin < data.numel(); begin += room) {
    const int64_t count = std::min(room, data.numel() - begin);
    const at::Tensor chunk = data.narrow(0, begin, count);
    Begin(call);
    Copy(Slot(place_, data, 0, count), chunk);
    Meet(call, timeout);
    if (size() == 2) {
      ReduceInto(chunk, Slot(1 - place_, data, 0, count), op);
      continue;
    }
    // Each rank reduces its part in place 0's slot.
    const int64_t first = count * place_ / size();
    const int64_t part = count * (place_ + 1) / size() - first;
    for (int place = 1; place < size(); ++place) {
      ReduceInto(Slot(0, data, first, part), Slot(place, data, first, part),
                 op);
    }
    Meet(call, timeout);
    Copy(chunk, Slot(0, data, 0, count));
  }
}

void SharedMemory::AllGather(const at::Tensor& output, const at::Tensor& input,
                             Timeout timeout) {
  const Call call{Call::kAllGather, input};
  const int64_t room = kSlotBytes / input.element_size();
  for (int64_t begin = 0; begin < input.numel(); begin += room) {
    const int64_t count = std::min(room, input.numel() - begin);
    Begin(call);
    Copy(Slot(place_, input, 0, count), input.narrow(0, begin, count));
    Meet(call, timeout);
    for (int place = 0; place < size(); ++place) {
      Copy(output.narrow(0, place * input.numel() + begin, count),
           Slot(place, input, 0, count));
    }
  }
}

void SharedMemory::ReduceScatter(const at::Tensor& output,
                                 const at::Tensor& input,
                                 const c10d::ReduceOp& op, Timeout timeout) {
  const Call call{Call::kReduceScatter, input};
  const int64_t room = kSlotBytes / input.element_size() / size();
  for (int64_t begin = 0; begin < output.numel(); begin += room) {
    const int64_t count = std::min(room, output.numel() - begin);
    const auto part_of = [&](int place) {
      return input.narrow(0, place * output.numel() + begin, count);
    };
    Begin(call);
    for (int place = 0; place < size(); ++place) {
      if (place == place_) continue;
      Copy(Slot(place_, input, place * count, count), part_of(place));
    }
    Meet(call, timeout);
    const at::Tensor sum = output.narrow(0, begin, count);
    Copy(sum, part_of(place_));
    for (int place = 0; place < size(); ++place) {
      if (place == place_) continue;
      ReduceInto(sum, Slot(place, input, place_ * count, count), op);
    }
  }
}

void SharedMemory::Send(const at::Tensor& data, int to, int tag) {
  const Message message = {"to", ranks_[to],
                           static_cast<int64_t>(data.nbytes())};
  if (SeatOf(place_).gave_up) Throw(message.Text(), kEarlierFailure);
  const std::lock_guard<std::mutex> lock(messages_);
  Mailbox& box = MailboxOf(place_, to);
  const uint32_t number = box.sent;
  if (number - box.noticed == kNotes) {
    Throw(message.Text(), absl::StrCat(kNotes,
                                       " others have not been received; "
                                       "--backend=gloo has no such limit"));
  }
  const int64_t offset = TakeRoom(message);
  Room& room = RoomAt(place_, offset);
  room.taken = false;
  room.bytes = message.bytes;
  std::memcpy(room.message(), data.data_ptr(), data.nbytes());
  box.notes[number % kNotes] = {tag, offset};
  box.sent = number + 1;
  if (box.sleepers > 0) Wake(box.sent);
}

int64_t SharedMemory::TakeRoom(const Message& message) {
  const int64_t room_bytes =
      (message.bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (const int64_t offset : rooms_) {
    const Room& room = RoomAt(place_, offset);
    // Not a much larger room, which a message of that size will need.
    if (room.taken && room.room_bytes >= room_bytes &&
        room.room_bytes <= 2 * room_bytes)
      return offset;
  }
  const int64_t offset = rooms_end_;
  const int64_t end = offset + static_cast<int64_t>(sizeof(Room)) + room_bytes;
  if (end > RoomsBytes()) {
    Throw(message.Text(),
          absl::StrCat("messages of ", offset,
                       " bytes have not been received; --backend=gloo "
                       "stores them at the sender"));
  }
  RoomAt(place_, offset).room_bytes = room_bytes;
  rooms_.push_back(offset);
  rooms_end_ = end;
  return offset;
}

void SharedMemory::Receive(const at::Tensor& data, int from, int tag,
                           Timeout timeout) {
  const Message message = {"from", ranks_[from],
                           static_cast<int64_t>(data.nbytes())};
  Mailbox& box = MailboxOf(from, place_);
  uint32_t noticed = 0;
  const Deadline deadline(timeout);
  while (!TakeMessage(data, from, tag, message, noticed)) {
    std::string why = WhyLate(deadline, from);
    if (why.empty()) {
      why = AwaitChange(
          box.sent, box.sleepers, [&] { return box.sent != noticed; }, from,
          deadline);
    }
    if (!why.empty()) Throw(message.Text(), why);
  }
}

bool SharedMemory::TryReceive(const at::Tensor& data, int from, int tag) {
  const Message message = {"from", ranks_[from],
                           static_cast<int64_t>(data.nbytes())};
  // Read before the message is looked for, as it may arrive in between.
  const std::string why = WhyNot(from);
  uint32_t noticed = 0;
  if (TakeMessage(data, from, tag, message, noticed)) return true;
  if (!why.empty()) Throw(message.Text(), why);
  return false;
}

bool SharedMemory::TakeMessage(const at::Tensor& data, int from, int tag,
                               const Message& message, uint32_t& noticed) {
  if (SeatOf(place_).gave_up) Throw(message.Text(), kEarlierFailure);
  const std::lock_guard<std::mutex> lock(messages_);
  Mailbox& box = MailboxOf(from, place_);
  std::deque<Note>& notes = incoming_[from];
  for (noticed = box.noticed; noticed != box.sent; box.noticed = ++noticed)
    notes.push_back(box.notes[noticed % kNotes]);
  const auto found =
      std::find_if(notes.begin(), notes.end(),
                   [tag](const Note& note) { return note.tag == tag; });
  if (found == notes.end()) return false;
  Room& room = RoomAt(from, found->offset);
  notes.erase(found);
  const int64_t bytes = room.bytes;
  const bool fits = bytes == message.bytes;
  if (fits) std::memcpy(data.data_ptr(), room.message(), data.nbytes());
  room.taken = true;
  if (!fits) Throw(message.Text(), absl::StrCat("it has ", bytes, " bytes"));
  return true;
}

void SharedMemory::Abort() {
  for (int place = 0; place < size(); ++place) {
    SeatOf(place).gave_up = true;
    Wake(SeatOf(place).epoch);
  }
}

void SharedMemory::Begin(const Call& call) {
  Seat& own = SeatOf(place_);
  if (own.gave_up) Fail(call.Text(), kEarlierFailure);
  bank_ = (bank_ + 1) % kBanks;
  own.calls[bank_] = call;
}

void SharedMemory::Meet(const Call& call, Timeout timeout) {
  Seat& own = SeatOf(place_);
  own.epoch = ++epoch_;
  if (own.sleepers > 0) Wake(own.epoch);
  for (int place = 0; place < size(); ++place) {
    if (place == place_) continue;
    Await(place, call, timeout);
    const Call& other = SeatOf(place).calls[bank_];
    if (other == call) continue;
    Fail(call.Text(),
         absl::StrCat("rank ", ranks_[place], " calls ", other.Text()));
  }
}

void SharedMemory::Await(int place, const Call& call, Timeout timeout) {
  Seat& peer = SeatOf(place);
  const std::string why = AwaitChange(
      peer.epoch, peer.sleepers,
      [&] { return static_cast<int32_t>(peer.epoch - epoch_) >= 0; }, place,
      Deadline(timeout));
  if (!why.empty()) Fail(call.Text(), why);
}

template <typename IsThere>
std::string SharedMemory::AwaitChange(std::atomic<uint32_t>& word,
                                      std::atomic<uint32_t>& sleepers,
                                      IsThere is_there, int place,
                                      const Deadline& deadline) {
  for (int i = 0; i < kLooks; ++i) {
    if (is_there()) return "";
    std::this_thread::yield();
  }
  std::string why;
  ++sleepers;
  while (true) {
    const uint32_t seen = word;
    if (is_there() || !why.empty()) break;
    SleepUnlessChanged(word, seen);
    why = WhyNot(place);
    if (why.empty()) why = WhyLate(deadline, place);
  }
  --sleepers;
  return is_there() ? "" : why;
}

std::string SharedMemory::WhyLate(const Deadline& deadline, int place) const {
  if (Clock::now() <= deadline.time) return "";
  return absl::StrCat("timed out after ", deadline.timeout.count(),
                      " ms of waiting for rank ", ranks_[place]);
}

std::string SharedMemory::WhyNot(int place) const {
  const std::string rank = absl::StrCat("rank ", ranks_[place]);
  if (SeatOf(place_).gave_up) return "another rank, or thread, has given up";
  if (SeatOf(place).left) return rank + " has left";
  pollfd process = {.fd = processes_[place], .events = POLLIN, .revents = 0};
  return poll(&process, 1, /*timeout=*/0) > 0 ? rank + " has ended" : "";
}

void SharedMemory::Fail(const std::string& call, const std::string& why) {
  Abort();
  Throw(call, why);
}

}  // namespace rankwise
