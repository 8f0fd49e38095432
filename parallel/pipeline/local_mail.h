// Messages between the ranks of a pipeline that runs in one process: copies
// from one device to another.
#ifndef RANKWISE_PARALLEL_PIPELINE_LOCAL_MAIL_H_
#define RANKWISE_PARALLEL_PIPELINE_LOCAL_MAIL_H_

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "c10/core/Stream.h"
#include "parallel/device/moment.h"
#include "parallel/pipeline/mail.h"
#include "parallel/pipeline/stage_streams.h"

namespace rankwise {

// A copy starts when both sides have started their transfer, on a stream of the
// sending device that does nothing else, after what had made the message.
// Whoever waits for either side, waits on its own stream. Used by one thread,
// which starts both sides of a transfer before it waits for one.
class LocalPostOffice {
 public:
  // `devices`: by rank. On accelerators the copies' streams are added to
  // `streams`, which outlives this.
  LocalPostOffice(std::vector<c10::Device> devices, StageStreams& streams);
  ~LocalPostOffice();

  // Of that rank; lives no longer than the office.
  std::unique_ptr<Mail> MailOf(int rank);

 private:
  class RankMail;
  using Address = std::tuple<int, int, int>;  // from, to, tag
  struct Letter {
    at::Tensor from, to;
    std::optional<Moment> sent, arrived;
    int waits = 0;  // of its two sides
  };

  void Copy(const Address& address, Letter& letter);

  const std::vector<c10::Device> devices_;
  StageStreams& streams_;
  std::vector<std::vector<c10::Stream>> departures_;  // by rank; empty on a CPU
  std::map<Address, Letter> letters_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_LOCAL_MAIL_H_
