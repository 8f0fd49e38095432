// Collectives and messages through memory that the ranks of one machine share:
// a rank copies its data in once, and the others read it there. TCP on the
// loopback interface needs two copies by the kernel and two wake-ups instead,
// and Gloo's thread spins while another one sends on its connection, which
// takes a time slice from a computing thread if all cores are busy.
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
// or max, on the calling thread alone, in pieces that stay in a core's cache.
void ReduceInto(const at::Tensor& into, const at::Tensor& from,
                const c10d::ReduceOp& op);

// One group's memory as seen by one of its ranks. Collectives block; they are
// called by one thread at a time, in the same order on every rank. They throw
// c10::DistBackendError if a peer has ended or left, calls another collective
// or does not arrive within `timeout`, and after Abort(); all later ones then
// fail, too, on all ranks. Any thread may send and receive messages meanwhile.
// A failed receive throws and affects no other message.
class SharedMemory {
 public:
  using Timeout = std::chrono::milliseconds;

  // Collective: rank ranks[place] of the job maps the memory created by
  // ranks[0], and meets the others in `store`. The memory has no name in the
  // file system, and is freed with the last rank. Throws c10::Error if the
  // kernel refuses it.
  SharedMemory(c10d::Store& store, const std::vector<int>& ranks, int place);
  // Fails peers that wait for this rank.
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Whether the collectives below support `tensor`, reduced by `op`. All ranks
  // get the same answer.
  static bool Carries(const at::Tensor& tensor,
                      const c10d::ReduceOp& op = c10d::ReduceOp::SUM);

  // Reduces flat `data` in place, in rank order. The result is bit-identical on
  // all ranks.
  void AllReduce(const at::Tensor& data, const c10d::ReduceOp& op,
                 Timeout timeout);
  // Gathers flat `input` of every rank, in order of place, to flat `output`.
  void AllGather(const at::Tensor& output, const at::Tensor& input,
                 Timeout timeout);
  // Splits flat `input` into one part per rank, and reduces the parts of this
  // place into `output`.
  void ReduceScatter(const at::Tensor& output, const at::Tensor& input,
                     const c10d::ReduceOp& op, Timeout timeout);

  // Copies flat `data` without waiting for the receiver. Sent messages can be
  // received after this rank has left.
  void Send(const at::Tensor& data, int to, int tag);
  // Waits for the first unreceived message from `from` with `tag`. Throws if
  // its size differs from that of flat `data`.
  void Receive(const at::Tensor& data, int from, int tag, Timeout timeout);
  // Receive() without waiting; returns false if the message has not arrived but
  // still can.
  bool TryReceive(const at::Tensor& data, int from, int tag);

  // Fails all calls in flight and all later ones, here and on the peers. May be
  // called from any thread.
  void Abort();

 private:
  struct Call;
  struct Seat;
  struct Mailbox;
  struct Room;
  struct Message;
  // End of a wait, and its length.
  struct Deadline {
    explicit Deadline(Timeout wait)
        : timeout(wait), time(std::chrono::steady_clock::now() + wait) {}

    Timeout timeout;
    std::chrono::steady_clock::time_point time;
  };
  // An unreceived message, at `offset` of its sender's rooms.
  struct Note {
    int tag;
    int64_t offset;
  };

  int size() const { return static_cast<int>(ranks_.size()); }
  int64_t RoomsBytes() const;
  void Map(int file);
  Seat& SeatOf(int place) const;
  // A slice of the slot of `place`: `count` elements of the type of `like`.
  at::Tensor Slot(int place, const at::Tensor& like, int64_t begin,
                  int64_t count) const;

  // Messages from `from` to `to`.
  Mailbox& MailboxOf(int from, int to) const;
  // The room at `offset` of those of `from`.
  Room& RoomAt(int from, int64_t offset) const;
  // Returns the offset of a room for `message` among this rank's: a received
  // one, or a new one. The caller marks it as not `taken`.
  int64_t TakeRoom(const Message& message);
  // Copies the first message from `from` with `tag` into `data`; returns false
  // if none has arrived. Sets `noticed` to the number of arrived messages.
  bool TakeMessage(const at::Tensor& data, int from, int tag,
                   const Message& message, uint32_t& noticed);

  // Begins a collective's next chunk in a bank of free slots.
  void Begin(const Call& call);
  // Barrier: data written by others before it is visible after it.
  void Meet(const Call& call, Timeout timeout);
  void Await(int place, const Call& call, Timeout timeout);
  // Blocks until is_there(), which `place` makes true by changing `word`;
  // counted in `sleepers` meanwhile. Returns "", or why it cannot become true.
  template <typename IsThere>
  std::string AwaitChange(std::atomic<uint32_t>& word,
                          std::atomic<uint32_t>& sleepers, IsThere is_there,
                          int place, const Deadline& deadline);
  // Returns "" if time is left, otherwise the message of a timeout.
  std::string WhyLate(const Deadline& deadline, int place) const;
  // Returns why `place` cannot arrive, or "" if it may.
  std::string WhyNot(int place) const;
  // Fails this call and all later ones.
  [[noreturn]] void Fail(const std::string& call, const std::string& why);

  const std::vector<int> ranks_;
  const int place_;
  const size_t bytes_;
  std::vector<int> processes_;  // pidfd by place; -1 if unavailable
  int file_ = -1;               // of the memory, on ranks[0]; -1 on others
  std::byte* memory_ = nullptr;
  uint32_t epoch_ = 0;  // barriers so far
  uint32_t bank_ = 0;   // index of the slots in use

  std::mutex messages_;                     // guards the members below
  std::vector<int64_t> rooms_;              // offsets in this rank's memory
  int64_t rooms_end_ = 0;                   // end of the last room
  std::vector<std::deque<Note>> incoming_;  // unreceived, by sender
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_SHARED_MEMORY_H_
