// Calls without futures, whose end is noted in a CollectiveLog by their wait().
#ifndef RANKWISE_PARALLEL_COMM_MONITORED_MESSAGE_H_
#define RANKWISE_PARALLEL_COMM_MONITORED_MESSAGE_H_

#include <memory>

#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/collective_log.h"

namespace c10d {
class Work;
}  // namespace c10d

namespace rankwise {

// A message's place in the log, from its start on.
class MessageEntry {
 public:
  // See CollectiveLog::BeginPointToPoint.
  MessageEntry(std::shared_ptr<CollectiveLog> log, const char* name,
               at::ArrayRef<at::Tensor> tensors, int peer, int group);

  CollectiveLog::Ticket ticket() const { return ticket_; }
  // Someone begins to wait for it.
  void Waiting() const;
  void Done() const;
  // After it was waited for so long. Noted even when the start has been
  // forgotten.
  void Failed(absl::Duration waited) const;

 private:
  std::shared_ptr<CollectiveLog> log_;
  const char* name_;
  int peer_;
  int group_;
  CollectiveLog::Ticket ticket_;
};

// `inner`, whose wait() notes in `entry` how it ended. Gloo's messages have no
// futures: they complete, or fail, in wait() only.
c10::intrusive_ptr<c10d::Work> MakeMonitoredMessage(
    c10::intrusive_ptr<c10d::Work> inner, const MessageEntry& entry);

// The same for a collective: `inner`, whose wait() ends `ticket`, as does its
// end if nobody waits. Gloo's reduce_scatters have no futures either.
c10::intrusive_ptr<c10d::Work> MakeMonitoredWait(
    c10::intrusive_ptr<c10d::Work> inner, std::shared_ptr<CollectiveLog> log,
    CollectiveLog::Ticket ticket);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_MONITORED_MESSAGE_H_
