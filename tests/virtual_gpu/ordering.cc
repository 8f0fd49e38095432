#include "tests/virtual_gpu/ordering.h"

#include <algorithm>

namespace rankwise::virtual_gpu {

void Clock::Set(int stream, uint64_t operation) {
  const auto index = static_cast<size_t>(stream);
  if (known_.size() <= index) known_.resize(index + 1);
  known_[index] = operation;
}

void Clock::Join(const Clock& other) {
  if (known_.size() < other.known_.size()) known_.resize(other.known_.size());
  for (size_t i = 0; i < other.known_.size(); ++i)
    known_[i] = std::max(known_[i], other.known_[i]);
}

void AccessTable::SplitAt(uintptr_t address) {
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return;
  const auto range = std::prev(next);
  if (range->first == address || range->second.end <= address) return;
  Range after = range->second;
  range->second.end = address;
  ranges_.emplace_hint(next, address, std::move(after));
}

std::string AccessTable::Add(const Access& access, int stream,
                             const Clock& clock, const char* operation) {
  const auto start = reinterpret_cast<uintptr_t>(access.start);
  const uintptr_t end = start + access.bytes;
  SplitAt(start);
  SplitAt(end);
  std::string conflict;
  const auto check = [&](const std::vector<Use>& uses, const char* verb) {
    for (const Use& use : uses) {
      if (use.stream == stream || clock[use.stream] >= use.operation) continue;
      conflict = std::string(verb) + " by " + use.name + " on stream " +
                 std::to_string(use.stream);
    }
  };
  const Use use = {stream, clock[stream], operation};
  uintptr_t covered = start;
  for (auto it = ranges_.lower_bound(start); covered < end;) {
    if (it == ranges_.end() || it->first > covered) {
      const uintptr_t gap_end =
          it == ranges_.end() ? end : std::min(end, it->first);
      it = ranges_.emplace_hint(it, covered, Range{gap_end, {}, {}});
    }
    Range& range = it->second;
    check(range.writes, "written");
    if (access.writes) {
      check(range.reads, "read");
      range.writes = {use};
      range.reads.clear();
    } else {
      const auto same = std::find_if(
          range.reads.begin(), range.reads.end(),
          [stream](const Use& other) { return other.stream == stream; });
      if (same == range.reads.end()) {
        range.reads.push_back(use);
      } else {
        *same = use;
      }
    }
    covered = range.end;
    ++it;
  }
  return conflict;
}

void AccessTable::Forget(const void* start, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(start);
  SplitAt(first);
  SplitAt(first + bytes);
  ranges_.erase(ranges_.lower_bound(first), ranges_.lower_bound(first + bytes));
}

}  // namespace rankwise::virtual_gpu
