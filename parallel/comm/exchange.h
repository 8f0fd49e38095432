// Collectives of a group, started and finished apart, so that ranks compute in
// between.
#ifndef RANKWISE_PARALLEL_COMM_EXCHANGE_H_
#define RANKWISE_PARALLEL_COMM_EXCHANGE_H_

#include <optional>

#include "ATen/core/Tensor.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/comm/exposed_comm.h"
#include "parallel/comm/group.h"
#include "parallel/device/device_event.h"
#include "torch/csrc/distributed/c10d/Types.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {

// A collective or message in flight. One that is not finished, because of an
// exception, is waited for by the destructor: its tensors are not freed under
// it, and the other ranks, which have started their side of it, can finish.
class Exchange {
 public:
  // `exposed`: where the wait is added up, which outlives this; null: it is not
  // counted.
  Exchange(c10::intrusive_ptr<c10d::Work> work, at::Tensor input,
           at::Tensor output, ExposedComm* exposed);
  // Of a group of one rank: `tensor`, once the current stream has written it.
  explicit Exchange(const at::Tensor& tensor);
  ~Exchange();
  Exchange(Exchange&&) = default;
  Exchange& operator=(Exchange&&) = delete;

  // Waits for the result (on an accelerator the current stream waits, which may
  // differ from the one that started it), and hands it over. Once. Throws what
  // the work throws; it is then not waited for again.
  at::Tensor Finish();

 private:
  c10::intrusive_ptr<c10d::Work> work_;  // null: finished, or one rank's
  at::Tensor input_, output_;
  std::optional<DeviceEvent> written_;  // of one rank
  ExposedComm* exposed_ = nullptr;
};

// These need a group of more than one rank. Throw what the process group
// throws.

// Reduces contiguous `x` in place.
Exchange StartAllReduce(const at::Tensor& x, const Group& group,
                        ExposedComm* exposed,
                        const c10d::ReduceOp& op = c10d::ReduceOp::SUM);
// x [...] of all ranks: [ranks, ...].
Exchange StartAllGather(const at::Tensor& x, const Group& group,
                        ExposedComm* exposed);
// Contiguous x [ranks, ...]: the sum of the ranks' x[place], [...].
Exchange StartReduceScatter(const at::Tensor& x, const Group& group,
                            ExposedComm* exposed);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_EXCHANGE_H_
