#include "parallel/comm/diagnosis/collective_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/backends.h"

namespace rankwise {

using State = CollectiveReport::State;

std::string PythonDtypeName(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Undefined ? "undefined"
                                             : c10::getDtypeNames(dtype).first;
}

CollectiveLog::CollectiveLog() : groups_(1) {}

int CollectiveLog::AddGroup(const std::string& name, std::vector<int> ranks) {
  std::lock_guard<std::mutex> lock(mutex_);
  Group& group = groups_.emplace_back();
  group.name = name;
  group.label = GroupPlace{name, ranks}.Label();
  group.ranks = std::move(ranks);
  return static_cast<int>(groups_.size()) - 1;
}

void CollectiveLog::SetRankPlaces(std::vector<std::string> places) {
  std::lock_guard<std::mutex> lock(mutex_);
  places_ = std::move(places);
}

int CollectiveLog::RankInJob(int rank, int group) const {
  const std::vector<int>& ranks = groups_[group].ranks;
  const bool mapped = rank >= 0 && static_cast<size_t>(rank) < ranks.size();
  return mapped ? ranks[rank] : rank;
}

CollectiveLog::Entry& CollectiveLog::NewEntry(const char* name,
                                              at::ArrayRef<at::Tensor> tensors,
                                              int group, int peer) {
  const Ticket ticket = next_ticket_++;
  Entry& entry = entries_[ticket % kEntries];
  // An incomplete entry this old is overwritten; its end leaves no trace.
  entry.ticket = ticket;
  entry.group = group;
  groups_[group].last = ticket;
  entry.name = name;
  entry.peer = RankInJob(peer, group);
  entry.ns_to_failure = 0;
  entry.tensors = tensors.size();
  entry.dtype = c10::ScalarType::Undefined;
  if (!tensors.empty() && tensors[0].defined()) {
    entry.dtype = tensors[0].scalar_type();
  }
  for (size_t i = 0; i < std::min(tensors.size(), kTensors); ++i) {
    const at::IntArrayRef sizes =
        tensors[i].defined() ? tensors[i].sizes() : at::IntArrayRef();
    entry.shapes[i].assign(sizes.begin(), sizes.end());
  }
  entry.start_ns = SteadyNowNs();
  last_start_ns_.store(entry.start_ns);
  AddEvent(ticket, name, tensors, group, entry.peer, entry.start_ns);
  return entry;
}

CollectiveLog::Ticket CollectiveLog::Begin(const char* name,
                                           at::ArrayRef<at::Tensor> tensors,
                                           bool observed, int group, int root) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = NewEntry(name, tensors, group, root);
  entry.peer = -1;  // a root is not a peer
  entry.sequence = ++groups_[group].sequence;
  entry.state = observed ? State::kInFlight : State::kUnobserved;
  if (observed) ++in_flight_;
  return entry.ticket;
}

CollectiveLog::Ticket CollectiveLog::BeginPointToPoint(
    const char* name, at::ArrayRef<at::Tensor> tensors, int peer, int group) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = NewEntry(name, tensors, group, peer);
  entry.sequence = groups_[group].sequence;
  entry.state = State::kUnobserved;
  return entry.ticket;
}

CollectiveLog::Entry* CollectiveLog::NoteEnd(Ticket ticket, bool ok,
                                             bool is_now) {
  const int64_t now = SteadyNowNs();
  CommEvent* const event = ok && is_now ? FindEvent(ticket) : nullptr;
  if (event != nullptr) event->end_ns = now;
  Entry& entry = entries_[ticket % kEntries];
  if (entry.ticket != ticket) return nullptr;
  entry.state = ok ? State::kDone : State::kFailed;
  entry.ns_to_failure = ok ? 0 : now - entry.start_ns;
  return &entry;
}

bool CollectiveLog::EndPointToPoint(Ticket ticket, bool ok,
                                    absl::Duration waited) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry* const entry = NoteEnd(ticket, ok, /*is_now=*/true);
  if (entry == nullptr) return false;
  entry->ns_to_failure = absl::ToInt64Nanoseconds(waited);
  return true;
}

void CollectiveLog::End(Ticket ticket, bool ok) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Entry& entry = entries_[ticket % kEntries];
  if (entry.ticket != ticket || entry.state == State::kInFlight) --in_flight_;
  NoteEnd(ticket, ok, /*is_now=*/true);
}

void CollectiveLog::Follow(Ticket ticket) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[ticket % kEntries];
  if (entry.ticket == ticket) entry.state = State::kInFlight;
  ++followed_;
}

void CollectiveLog::EndFollowed(Ticket ticket, bool ok) {
  std::lock_guard<std::mutex> lock(mutex_);
  NoteEnd(ticket, ok, /*is_now=*/false);
  --followed_;
}

void CollectiveLog::StartTraffic() {
  std::lock_guard<std::mutex> lock(mutex_);
  events_.clear();
  events_.reserve(kEventRoom);
  adds_events_ = ends_events_ = true;
}

void CollectiveLog::StopTraffic() {
  std::lock_guard<std::mutex> lock(mutex_);
  adds_events_ = false;
}

void CollectiveLog::AddEvent(Ticket ticket, const char* op,
                             at::ArrayRef<at::Tensor> tensors, int group,
                             int peer, int64_t start_ns) {
  if (!adds_events_) return;
  CommEvent event;
  event.op = op;
  event.peer = peer;
  event.ranks = groups_[group].ranks;
  event.group = groups_[group].name;
  event.start_ns = start_ns;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    event.bytes += static_cast<int64_t>(tensor.nbytes());
    event.count += tensor.numel();
    event.dtype = PythonDtypeName(tensor.scalar_type());
  }
  events_.push_back({ticket, std::move(event)});
}

CommEvent* CollectiveLog::FindEvent(Ticket ticket) {
  if (!ends_events_) return nullptr;
  const auto after = std::upper_bound(
      events_.begin(), events_.end(), ticket,
      [](Ticket wanted, const Recorded& each) { return wanted < each.ticket; });
  if (after == events_.begin() || (after - 1)->ticket != ticket) return nullptr;
  return &(after - 1)->event;
}

std::vector<CommEvent> CollectiveLog::TakeTraffic() {
  // Waiters wake before End is called: on a busy machine the last calls of End
  // may still be pending.
  const Deadline deadline(absl::Milliseconds(100));
  std::unique_lock<std::mutex> lock(mutex_);
  while (in_flight_ > 0 && !deadline.passed()) {
    lock.unlock();
    absl::SleepFor(absl::Microseconds(50));
    lock.lock();
  }
  adds_events_ = ends_events_ = false;
  std::vector<CommEvent> taken;
  for (Recorded& recorded : events_) {
    taken.push_back(std::move(recorded.event));
  }
  events_.clear();
  return taken;
}

void CollectiveLog::WaitPointToPoint(Ticket ticket) {
  if (!ends_events_) return;
  std::lock_guard<std::mutex> lock(mutex_);
  CommEvent* const event = FindEvent(ticket);
  if (event != nullptr && event->wait_start_ns == 0) {
    event->wait_start_ns = SteadyNowNs();
  }
}

void CollectiveLog::StartCoalescing(int group) {
  std::lock_guard<std::mutex> lock(mutex_);
  AddEvent(next_ticket_, "start_coalescing", {}, group, /*peer=*/-1,
           SteadyNowNs());
}

const CollectiveLog::Entry* CollectiveLog::Oldest(State state) const {
  const Entry* oldest = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.state != state) continue;
    if (oldest == nullptr || entry.ticket < oldest->ticket) oldest = &entry;
  }
  return oldest;
}

CollectiveReport CollectiveLog::Report(const Entry& entry) const {
  CollectiveReport report;
  report.state = entry.state;
  report.group = entry.group;
  report.ranks = groups_[entry.group].ranks;
  report.sequence = entry.sequence;
  report.peer = entry.peer;
  if (entry.state == State::kNone) return report;
  report.seconds_since = (SteadyNowNs() - entry.start_ns) * 1e-9;
  report.seconds_to_failure = entry.ns_to_failure * 1e-9;
  std::vector<std::string> shapes;
  for (size_t i = 0; i < std::min(entry.tensors, kTensors); ++i) {
    shapes.push_back(
        absl::StrCat("[", absl::StrJoin(entry.shapes[i], ", "), "]"));
  }
  if (entry.tensors > kTensors) {
    shapes.push_back(absl::StrCat("and ", entry.tensors - kTensors, " more"));
  }
  report.description = std::string(entry.name);
  if (entry.peer >= 0) {
    absl::StrAppend(&report.description, " with rank ", entry.peer, " after");
  }
  absl::StrAppend(&report.description, " #", entry.sequence,
                  groups_[entry.group].label);
  if (entry.tensors > 0) {
    absl::StrAppend(&report.description, " of [", absl::StrJoin(shapes, ", "),
                    "] ", PythonDtypeName(entry.dtype));
  }
  return report;
}

CollectiveReport CollectiveLog::Suspect() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Entry* entry = Oldest(State::kFailed);
  if (entry == nullptr) entry = Oldest(State::kInFlight);
  if (entry == nullptr) entry = &entries_[(next_ticket_ - 1) % kEntries];
  CollectiveReport report = Report(*entry);
  report.places = places_;
  return report;
}

CollectiveReport CollectiveLog::LastStarted() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Report(entries_[(next_ticket_ - 1) % kEntries]);
}

std::vector<GroupProgress> CollectiveLog::Progress() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<GroupProgress> progress;
  for (const Group& group : groups_) {
    GroupProgress last = {group.sequence, ""};
    const Entry& entry = entries_[group.last % kEntries];
    if (group.last > 0 && entry.ticket == group.last) {
      last.doing = Report(entry).description;
    } else if (group.last > 0) {  // overwritten
      last.doing = absl::StrCat("#", group.sequence, group.label);
    }
    progress.push_back(std::move(last));
  }
  return progress;
}

int CollectiveLog::in_flight() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return in_flight_ + followed_;
}

}  // namespace rankwise
