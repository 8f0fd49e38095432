// Memory that the ranks of one machine share, and collectives and messages
// through it: a rank copies its data in once, and the others read it there. TCP
// on the loopback interface takes two copies by the kernel and two wake-ups
// instead, and Gloo's thread spins while another one sends on its connection:
// where all cores compute, that takes a time slice from one of them.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_SHARED_MEMORY_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_SHARED_MEMORY_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/csrc/distributed/c10d/Store.hpp"
#include "torch/csrc/distributed/c10d/Types.hpp"

namespace rankwise {

// Reduces flat `from` into flat `into`, of the same type, by sum, product, min
// or max: in the calling thread alone, in pieces that stay in a core's cache.
void ReduceInto(const at::Tensor& into, const at::Tensor& from,
                const c10d::ReduceOp& op);

// One group's memory, as one of its ranks sees it. The collectives are called
// by one thread at a time, in the same order on every rank, and block. They
// throw c10::DistBackendError when a peer has ended or left, when one calls
// another collective or has not come within `timeout`, and after Abort(); every
// later one fails, too, on all ranks. Messages may be sent and received by any
// thread meanwhile. One that cannot be received throws, too, and fails no
// other.
class SharedMemory {
 public:
  using Timeout = std::chrono::milliseconds;

  // Collective: rank ranks[place] of the job maps the memory that ranks[0]
  // makes, and meets the others in `store`. The memory has no name in the file
  // system, and ends with the last rank. Throws c10::Error where the kernel
  // refuses it.
  SharedMemory(c10d::Store& store, const std::vector<int>& ranks, int place);
  // Peers that wait for this rank fail.
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Whether the collectives below can have `tensor`, reduced by `op`: the same
  // on all ranks.
  static bool Carries(const at::Tensor& tensor,
                      const c10d::ReduceOp& op = c10d::ReduceOp::SUM);

  // Reduces `data`, flat, in place. All ranks have the same bits, whose
  // rounding is that of the order of ranks.
  void AllReduce(const at::Tensor& data, const c10d::ReduceOp& op,
                 Timeout timeout);
  // Flat `input` of every rank, in order of place, to flat `output`.
  void AllGather(const at::Tensor& output, const at::Tensor& input,
                 Timeout timeout);
  // Flat `input` in as many parts as there are ranks; `output` is the part of
  // this place, reduced.
  void ReduceScatter(const at::Tensor& output, const at::Tensor& input,
                     const c10d::ReduceOp& op, Timeout timeout);

  // Copies flat `data`; does not wait for the receiver. What has been sent can
  // be received after this rank has left.
  void Send(const at::Tensor& data, int to, int tag);
  // Waits for the first message from `from` with `tag` that was not received
  // yet, of as many bytes as flat `data`.
  void Receive(const at::Tensor& data, int from, int tag, Timeout timeout);
  // Receive() without waiting; returns false if the message has not arrived but
  // still can.
  bool TryReceive(const at::Tensor& data, int from, int tag);

  // Fails what is in flight and all that follows, here and on the peers. Any
  // thread.
  void Abort();

 private:
  struct Call;
  struct Seat;
  struct Mailbox;
  struct Room;
  struct Message;
  // When a wait ends, and how long it was to be.
  struct Deadline {
    explicit Deadline(Timeout wait)
        : timeout(wait), time(std::chrono::steady_clock::now() + wait) {}

    Timeout timeout;
    std::chrono::steady_clock::time_point time;
  };
  // A message that waits: where it is, among what its sender has sent.
  struct Note {
    int tag;
    int64_t offset;
  };

  int size() const { return static_cast<int>(ranks_.size()); }
  int64_t RoomsBytes() const;
  void Map(int file);
  Seat& SeatOf(int place) const;
  // Of what `place` has put down: `count` elements like those of `like`.
  at::Tensor Slot(int place, const at::Tensor& like, int64_t begin,
                  int64_t count) const;

  // Of what `from` sends to `to`.
  Mailbox& MailboxOf(int from, int to) const;
  // At `offset` of what `from` has sent.
  Room& RoomAt(int from, int64_t offset) const;
  // Its offset among what this rank sends; not `taken`.
  int64_t TakeRoom(const Message& message);
  // Copies the first message of `tag` into `data`, where it is among the first
  // `noticed` of `from`, all that have come.
  bool TakeMessage(const at::Tensor& data, int from, int tag,
                   const Message& message, uint32_t& noticed);

  // A collective's next chunk, for which all slots are free.
  void Begin(const Call& call);
  // Barrier: what the others put down before it is there after it.
  void Meet(const Call& call, Timeout timeout);
  void Await(int place, const Call& call, Timeout timeout);
  // Until `is_there()`, for which `word` changes, by `place`; `sleepers` counts
  // who waits. Why it will not be; empty: it is.
  template <typename IsThere>
  std::string AwaitChange(std::atomic<uint32_t>& word,
                          std::atomic<uint32_t>& sleepers, IsThere is_there,
                          int place, const Deadline& deadline);
  // Empty: there is time left.
  std::string WhyLate(const Deadline& deadline, int place) const;
  // Why `place` will not come; empty: it may.
  std::string WhyNot(int place) const;
  // Fails all that follows.
  [[noreturn]] void Fail(const std::string& call, const std::string& why);

  const std::vector<int> ranks_;
  const int place_;
  const size_t bytes_;
  std::vector<int> processes_;  // by place: pidfd, -1 without one
  int file_ = -1;               // of the memory, where it was made
  std::byte* memory_ = nullptr;
  uint32_t epoch_ = 0;  // barriers so far
  uint32_t bank_ = 0;   // which of its slots a rank uses

  std::mutex messages_;                     // guards what follows
  std::vector<int64_t> rooms_;              // offsets
  int64_t rooms_end_ = 0;                   // of all rooms
  std::vector<std::deque<Note>> incoming_;  // by sender, not received yet
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_SHARED_MEMORY_H_
