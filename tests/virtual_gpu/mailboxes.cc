#include "tests/virtual_gpu/mailboxes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

namespace rankwise::virtual_gpu {

namespace {

constexpr size_t kRingBytes = 1 << 20;
constexpr int kMaxRanks = 64;

struct Ring {
  std::atomic<uint64_t> written;
  std::atomic<uint64_t> read;
  char data[kRingBytes];
};

struct Entry {
  std::atomic<uint64_t> posted;    // number of exchanges posted by this rank
  std::atomic<uint64_t> finished;  // number of exchanges read by this rank
  int first;
  int second;
};

}  // namespace

// Initially zero, like the file.
struct SharedSegment {
  std::atomic<int> arrived;
  std::atomic<int> device_plus_one[kMaxRanks];
  Entry entries[kMaxRanks];
  Ring rings[];  // from * ranks + to
};

Mailboxes::Mailboxes(const std::string& id, int rank, int ranks,
                     int machine_device)
    : name_("/rankwise-virtual-nccl-" + id), rank_(rank), ranks_(ranks) {
  const size_t bytes =
      sizeof(SharedSegment) + sizeof(Ring) * static_cast<size_t>(ranks * ranks);
  const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT, 0600);
  if (ranks > kMaxRanks || file < 0 ||
      ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    std::perror("virtual NCCL: no shared memory");
    std::abort();
  }
  void* const start =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (start == MAP_FAILED) {
    std::perror("virtual NCCL: no shared memory");
    std::abort();
  }
  segment_ = static_cast<SharedSegment*>(start);
  segment_->device_plus_one[rank] = machine_device + 1;
  // The last rank removes the name, so that nothing is left.
  if (++segment_->arrived == ranks) shm_unlink(name_.c_str());
}

bool Mailboxes::AwaitUntil(const std::function<bool()>& condition) const {
  constexpr timespec kPause = {0, 50'000};
  while (!condition()) {
    if (aborted_) return false;
    nanosleep(&kPause, nullptr);
  }
  return true;
}

bool Mailboxes::AwaitAll() {
  return AwaitUntil([this] { return segment_->arrived >= ranks_; });
}

int Mailboxes::RankOnSameDevice() const {
  for (int other = 0; other < ranks_; ++other) {
    if (other != rank_ &&
        segment_->device_plus_one[other] == segment_->device_plus_one[rank_])
      return other;
  }
  return -1;
}

std::vector<std::pair<int, int>> Mailboxes::Exchange(std::pair<int, int> mine) {
  const auto all = [this](std::atomic<uint64_t> Entry::*counter) {
    for (int i = 0; i < ranks_; ++i)
      if (segment_->entries[i].*counter < exchanges_) return false;
    return true;
  };
  // All ranks have read the previous exchange.
  if (!AwaitUntil([&] { return all(&Entry::finished); })) return {};
  ++exchanges_;
  Entry& own = segment_->entries[rank_];
  std::tie(own.first, own.second) = mine;
  own.posted = exchanges_;
  if (!AwaitUntil([&] { return all(&Entry::posted); })) return {};
  std::vector<std::pair<int, int>> values;
  for (int i = 0; i < ranks_; ++i)
    values.emplace_back(segment_->entries[i].first,
                        segment_->entries[i].second);
  own.finished = exchanges_;
  return values;
}

bool Mailboxes::Move(Transfer& transfer) {
  const int from = transfer.sends ? rank_ : transfer.peer;
  const int to = transfer.sends ? transfer.peer : rank_;
  Ring& ring = segment_->rings[from * ranks_ + to];
  const size_t left = transfer.bytes - transfer.moved;
  const uint64_t position = transfer.sends ? ring.written : ring.read;
  const size_t ready = transfer.sends ? kRingBytes - (position - ring.read)
                                      : ring.written - position;
  const size_t offset = position % kRingBytes;
  const size_t bytes = std::min({left, ready, kRingBytes - offset});
  if (bytes == 0) return false;
  char* const data = transfer.data + transfer.moved;
  if (transfer.sends) {
    std::memcpy(ring.data + offset, data, bytes);
    ring.written += bytes;
  } else {
    std::memcpy(data, ring.data + offset, bytes);
    ring.read += bytes;
  }
  transfer.moved += bytes;
  return true;
}

bool Mailboxes::Run(std::vector<Transfer>& transfers) {
  for (;;) {
    bool moved = false, done = true;
    std::set<std::pair<bool, int>> busy;
    for (Transfer& transfer : transfers) {
      if (transfer.moved == transfer.bytes) continue;
      done = false;
      if (!busy.insert({transfer.sends, transfer.peer}).second) continue;
      moved = Move(transfer) || moved;
    }
    if (done) return true;
    if (aborted_) return false;
    constexpr timespec kPause = {0, 20'000};
    if (!moved) nanosleep(&kPause, nullptr);
  }
}

}  // namespace rankwise::virtual_gpu
