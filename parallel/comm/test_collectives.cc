#include "parallel/comm/test_collectives.h"

#include <deque>
#include <exception>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/diagnosis/plain_error.h"

namespace rankwise {
namespace {

using at::Tensor;
using c10d::ProcessGroup;
using c10d::ReduceOp;
using Tensors = std::vector<Tensor>;

void ExpectEqual(const Tensor& got, const Tensor& expected,
                 const std::string& what) {
  TORCH_CHECK(got.equal(expected), what, " gave a wrong result");
}

Tensor Full(int64_t count, double value, c10::ScalarType dtype = c10::kFloat) {
  return at::full({count}, value, dtype);
}

// Collectives in place, and on lists.
void CheckVariants(ProcessGroup& mpi) {
  constexpr int64_t kCount = 1000;
  const int size = mpi.getSize(), rank = mpi.getRank();
  const double sum = size * (size - 1) / 2.0;
  const Tensor of_ranks =
      at::arange(size, at::kFloat).repeat_interleave(kCount);

  Tensor all = at::zeros({size * kCount});
  Tensor own = all.narrow(0, rank * kCount, kCount).fill_(rank);
  mpi._allgather_base(all, own)->wait();
  ExpectEqual(all, of_ranks, "all_gather in place");

  Tensor whole = Full(size * kCount, rank);
  Tensor part = whole.narrow(0, rank * kCount, kCount);
  mpi._reduce_scatter_base(part, whole)->wait();
  ExpectEqual(part, Full(kCount, sum), "reduce_scatter in place");

  // The part for rank r is larger by r.
  std::vector<Tensors> parts = {Tensors()};
  for (int peer = 0; peer < size; ++peer)
    parts[0].push_back(Full(kCount, rank + peer));
  Tensors output = {Full(kCount, 0)};
  mpi.reduce_scatter(output, parts)->wait();
  ExpectEqual(output[0], Full(kCount, sum + rank * size),
              "reduce_scatter of a list");
  Tensors received = all.chunk(size);
  mpi.alltoall(received, parts[0])->wait();
  ExpectEqual(all, of_ranks + rank, "all_to_all of a list");
}

void CheckAnySource(ProcessGroup& mpi) {
  Tensors message = {Full(3, mpi.getRank() + 0.5)};
  if (mpi.getRank() > 0) {
    mpi.send(message, 0, /*tag=*/3)->wait();
    return;
  }
  for (int i = 1; i < mpi.getSize(); ++i) {
    const auto work = mpi.recvAnysource(message, /*tag=*/3);
    work->wait();
    ExpectEqual(message[0], Full(3, work->sourceRank() + 0.5),
                "recv from any rank");
  }
}

// A future completes without anyone waiting for the work, and holds the result.
void CheckFuture(ProcessGroup& mpi) {
  constexpr int64_t kCount = 100000;
  Tensors tensors = {Full(kCount, 1)};
  const auto future = mpi.allreduce(tensors)->getFuture();
  future->wait();
  ExpectEqual(future->value().toTensorVector().at(0),
              Full(kCount, mpi.getSize()), "the future of an all_reduce");
}

void ExpectRefused(const char* part, const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    const std::string text = PlainMessage(error);
    TORCH_CHECK(text.find(part) != std::string::npos, "refused by: ", text);
    return;
  }
  TORCH_CHECK(false, "not refused: ", part);
}

void CheckRefusals(ProcessGroup& mpi) {
  Tensors tensors = {at::ones({4})};
  ExpectRefused("sum, product, min and max only", [&] {
    c10d::AllreduceOptions average;
    average.reduceOp = ReduceOp::AVG;
    mpi.allreduce(tensors, average);
  });
  Tensors transposed = {at::ones({4, 3}).t()};
  ExpectRefused("must be contiguous", [&] { mpi.send(transposed, 0, 0); });
  Tensors strided = {at::ones({4, 3}).select(1, 0)};
  ExpectRefused("must be dense", [&] { mpi.allreduce(strided); });
  ExpectRefused("the message's tag is -1, and this MPI carries 0 to",
                [&] { mpi.send(tensors, 0, -1); });
  at::Tensor own = at::ones({4});
  at::Tensor all = at::ones({4 * mpi.getSize()}, at::kDouble);
  ExpectRefused("elements of Double are not 4 of Float",
                [&] { mpi._allgather_base(all, own); });
  at::Tensor few = at::ones({4 * mpi.getSize() - 1});
  ExpectRefused("elements of Float are not 4 of Float",
                [&] { mpi._reduce_scatter_base(own, few); });
}

// Calls in flight with their expected results.
class InFlight {
 public:
  InFlight(ProcessGroup& group, uint32_t seed) : group_(group), random_(seed) {}

  // Starts a call, the same one on all ranks.
  void StartOne() {
    const int size = group_.getSize(), rank = group_.getRank();
    const auto dtype = Draw(2) == 0 ? c10::kFloat : c10::kBFloat16;
    const int64_t count = 1 + Draw(20000);
    Tensors tensors = {Full(count, rank, dtype)};
    switch (Draw(8)) {
      case 0:
        return Add("barrier", group_.barrier());
      case 1: {
        c10d::BroadcastOptions options;
        options.rootRank = Draw(size);
        return Add("broadcast", group_.broadcast(tensors, options), tensors[0],
                   Full(count, options.rootRank, dtype));
      }
      case 2: {
        Tensor all = Full(size * count, 0, dtype);
        return Add("all_gather", group_._allgather_base(all, tensors[0]), all,
                   at::arange(size, dtype).repeat_interleave(count));
      }
      case 3: {
        const int before = (rank + size - 1) % size;
        Tensors received = {Full(count, 0, dtype)};
        Add("send", group_.send(tensors, (rank + 1) % size, /*tag=*/7));
        return Add("recv", group_.recv(received, before, /*tag=*/7),
                   received[0], Full(count, before, dtype));
      }
      default:
        return Add("all_reduce", group_.allreduce(tensors), tensors[0],
                   Full(count, size * (size - 1) / 2.0, dtype));
    }
  }

  // Waits for the oldest calls until at most `count` are left.
  void FinishUntil(size_t count) {
    for (; calls_.size() > count; calls_.pop_front()) {
      const Call& call = calls_.front();
      call.work->wait();
      if (call.result.defined())
        ExpectEqual(call.result, call.expected, call.name);
    }
  }

  // Returns a number in [0, end).
  int Draw(int end) { return static_cast<int>(random_() % end); }

 private:
  struct Call {
    const char* name;
    c10::intrusive_ptr<c10d::Work> work;
    Tensor result, expected;
  };

  void Add(const char* name, c10::intrusive_ptr<c10d::Work> work,
           const Tensor& result = {}, const Tensor& expected = {}) {
    calls_.push_back({name, std::move(work), result, expected});
  }

  ProcessGroup& group_;
  std::mt19937 random_;
  std::deque<Call> calls_;
};

}  // namespace

void CheckMpi(ProcessGroup& mpi) {
  CheckVariants(mpi);
  CheckAnySource(mpi);
  CheckFuture(mpi);
  CheckRefusals(mpi);
}

void MixCalls(ProcessGroup& group, int calls, uint32_t seed) {
  InFlight in_flight(group, seed);
  for (int i = 0; i < calls; ++i) {
    in_flight.StartOne();
    in_flight.FinishUntil(in_flight.Draw(8));
  }
  in_flight.FinishUntil(0);
}

}  // namespace rankwise
