// Bytes between the ranks of an NCCL communicator, processes or threads: for
// every ordered pair of ranks a ring buffer in memory that they share.
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
  // Maps the segment named `id`, which the first rank to come makes.
  Mailboxes(const std::string& id, int rank, int ranks, int machine_device);

  // Until every rank is there; false if `aborted` meanwhile.
  bool AwaitAll();
  // Another rank on the same GPU of the machine, -1 if there is none.
  int RankOnSameDevice() const;
  // What every rank passed, by rank; empty if aborted. All call it equally
  // often.
  std::vector<std::pair<int, int>> Exchange(std::pair<int, int> mine);

  struct Transfer {
    bool sends = false;
    int peer = 0;
    char* data = nullptr;
    size_t bytes = 0;
    size_t moved = 0;
  };
  // Runs all at once, those of one pair and direction in their order. False if
  // aborted.
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
