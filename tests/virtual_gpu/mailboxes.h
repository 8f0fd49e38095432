// Transfers between the ranks of an NCCL communicator, which are processes or
// threads: a ring buffer in shared memory for every ordered pair of ranks.
#ifndef RANKWISE_TESTS_VIRTUAL_GPU_MAILBOXES_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_MAILBOXES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rankwise::virtual_gpu {

struct SharedSegment;

class Mailboxes {
 public:
  // Maps the segment named `id`, which the first rank creates.
  Mailboxes(const std::string& id, int rank, int ranks, int machine_device);

  // Blocks until every rank is there; returns false if `aborted` meanwhile.
  bool AwaitAll();
  // Returns another rank on the same GPU of the machine; -1 without one.
  int RankOnSameDevice() const;
  // Returns the pairs passed by all ranks, by rank; empty if aborted.
  // Collective.
  std::vector<std::pair<int, int>> Exchange(std::pair<int, int> mine);

  struct Transfer {
    bool sends = false;
    int peer = 0;
    char* data = nullptr;
    size_t bytes = 0;
    size_t moved = 0;
  };
  // Runs all transfers concurrently, those of one pair and direction in order.
  // Returns false if aborted.
  bool Run(std::vector<Transfer>& transfers);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  void Abort() { aborted_ = true; }

 private:
  bool AwaitUntil(const std::function<bool()>& condition) const;
  bool Move(Transfer& transfer);

  const std::string name_;
  const int rank_;
  const int ranks_;
  SharedSegment* segment_ = nullptr;
  uint64_t exchanges_ = 0;
  std::atomic<bool> aborted_ = false;
};

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_MAILBOXES_H_
