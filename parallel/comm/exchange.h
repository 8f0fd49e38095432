// Collectives that are started and finished separately, so that ranks can
// compute in between.
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

// A collective or message in flight. If an exception prevents Finish, the
// destructor waits, so that no tensor is freed while the transfer uses it and
// the other ranks can finish their part.
class Exchange {
 public:
  // Adds the wait to `exposed`, which must outlive this object, unless it is
  // nullptr.
  Exchange(c10::intrusive_ptr<c10d::Work> work, at::Tensor input,
           at::Tensor output, ExposedComm* exposed);
  // For a group of one rank: holds `tensor` until the current stream has
  // written it.
  explicit Exchange(const at::Tensor& tensor);
  ~Exchange();
  Exchange(Exchange&&) = default;
  Exchange& operator=(Exchange&&) = delete;

  // Waits for the result and returns it. On an accelerator the current stream
  // waits, which may differ from the one that started the exchange. Call it
  // once. Rethrows the collective's error; the destructor then does not wait
  // again.
  at::Tensor Finish();

 private:
  c10::intrusive_ptr<c10d::Work> work_;  // nullptr if finished or single-rank
  at::Tensor input_, output_;
  std::optional<DeviceEvent> written_;  // set only for a group of one rank
  ExposedComm* exposed_ = nullptr;
};

// These require a group of several ranks and throw the process group's
// exceptions.

// Reduces contiguous `x` in place.
Exchange StartAllReduce(const at::Tensor& x, const Group& group,
                        ExposedComm* exposed,
                        const c10d::ReduceOp& op = c10d::ReduceOp::SUM);
// Gathers x [...] of all ranks to [ranks, ...].
Exchange StartAllGather(const at::Tensor& x, const Group& group,
                        ExposedComm* exposed);
// Sums x[place] of contiguous x [ranks, ...] over the ranks; returns [...].
Exchange StartReduceScatter(const at::Tensor& x, const Group& group,
                            ExposedComm* exposed);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_EXCHANGE_H_
