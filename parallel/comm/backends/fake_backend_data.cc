#include <algorithm>
#include <cstdint>

#include "ATen/Functions.h"
#include "c10/util/Exception.h"
#include "parallel/comm/backends/fake_backend_exchange.h"

namespace rankwise {
namespace {

using c10d::ReduceOp;
using torch::Tensor;
using Ranks = std::vector<const FakeCall*>;

bool Mirrored(const Ranks& from) {
  return std::adjacent_find(from.begin(), from.end(), std::not_equal_to<>()) ==
         from.end();
}

Tensor Combine(const Tensor& a, const Tensor& b, ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::AVG:
      return a + b;
    case ReduceOp::PRODUCT:
      return a * b;
    case ReduceOp::MIN:
      return at::minimum(a, b);
    case ReduceOp::MAX:
      return at::maximum(a, b);
    case ReduceOp::BAND:
      return at::bitwise_and(a, b);
    case ReduceOp::BOR:
      return at::bitwise_or(a, b);
    case ReduceOp::BXOR:
      return at::bitwise_xor(a, b);
    default:
      TORCH_CHECK(false, "the fake backend does not know reduce op ",
                  static_cast<int>(op));
  }
}

// `copies` times the same tensor, reduced without doing it `copies` times.
Tensor CombineCopies(const Tensor& x, int64_t copies, ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return x * copies;
    case ReduceOp::PRODUCT:
      return at::pow(x, copies);
    case ReduceOp::BXOR:
      return copies % 2 == 1 ? x.clone() : at::zeros_like(x);
    default:
      return x.clone();
  }
}

// The reduction over all ranks of their `index`-th input.
Tensor Reduce(const Ranks& from, size_t index) {
  const ReduceOp::RedOpType op = from[0]->op;
  const auto world_size = static_cast<int64_t>(from.size());
  const Tensor& first = from[0]->inputs.at(index);
  if (Mirrored(from)) {
    return CombineCopies(first, world_size, op).to(first.scalar_type());
  }
  Tensor sum = first;
  for (size_t rank = 1; rank < from.size(); ++rank) {
    const Tensor& next = from[rank]->inputs.at(index);
    TORCH_CHECK(next.sizes() == first.sizes() &&
                    next.scalar_type() == first.scalar_type(),
                from[0]->name, ": rank 0 has ", first.sizes(), " ",
                first.scalar_type(), ", rank ", rank, " has ", next.sizes(),
                " ", next.scalar_type());
    sum = Combine(sum, next, op);
  }
  if (op == ReduceOp::AVG) sum = sum / world_size;
  return sum.to(first.scalar_type());
}

void Copy(const FakeCall& call, const Tensor& source, const Tensor& target) {
  TORCH_CHECK(source.numel() == target.numel(), call.name, ": ", source.numel(),
              " elements do not fit into a buffer of ", target.numel());
  target.copy_(source.reshape(target.sizes()));
}

void CopyPrefix(const Tensor& source, const Tensor& target) {
  const int64_t count = std::min(source.numel(), target.numel());
  // Split views of a contiguous buffer are contiguous.
  target.view({-1})
      .narrow(0, 0, count)
      .copy_(source.reshape({-1}).narrow(0, 0, count));
}

void MoveReduce(const Ranks& from, const std::vector<int>& to) {
  for (size_t i = 0; i < from[0]->inputs.size(); ++i) {
    const Tensor result = Reduce(from, i);
    for (int rank : to) {
      const FakeCall& call = *from[rank];
      if (call.root < 0 || call.root == rank) {
        Copy(call, result, call.outputs.at(i));
      }
    }
  }
}

void MoveBroadcast(const Ranks& from, const std::vector<int>& to) {
  for (int rank : to) {
    const FakeCall& call = *from[rank];
    for (size_t i = 0; i < call.outputs.size() && rank != call.root; ++i) {
      Copy(call, from[call.root]->inputs.at(i), call.outputs[i]);
    }
  }
}

void MoveGather(const Ranks& from, const std::vector<int>& to) {
  for (int rank : to) {
    const FakeCall& call = *from[rank];
    if (call.root >= 0 && call.root != rank) continue;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const FakeCall& source = *from[i % from.size()];
      Copy(call, source.inputs.at(i / from.size()), call.outputs[i]);
    }
  }
}

void MoveScatter(const Ranks& from, const std::vector<int>& to) {
  for (int rank : to) {
    const FakeCall& call = *from[rank];
    const std::vector<Tensor>& slices = from[call.root]->inputs;
    if (slices.empty() && Mirrored(from)) continue;  // not the root
    Copy(call, slices.at(rank), call.outputs.at(0));
  }
}

void MoveReduceScatter(const Ranks& from, const std::vector<int>& to) {
  for (int rank : to) {
    const FakeCall& call = *from[rank];
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      Copy(call, Reduce(from, i * from.size() + rank), call.outputs[i]);
    }
  }
}

void MoveAllToAll(const Ranks& from, const std::vector<int>& to) {
  for (int rank : to) {
    const FakeCall& call = *from[rank];
    for (size_t source = 0; source < from.size(); ++source) {
      const Tensor& slice = from[source]->inputs.at(rank);
      if (Mirrored(from)) {
        CopyPrefix(slice, call.outputs.at(source));
      } else {
        Copy(call, slice, call.outputs.at(source));
      }
    }
  }
}

}  // namespace

void MoveFakeData(const std::vector<const FakeCall*>& from,
                  const std::vector<int>& to) {
  switch (from[0]->kind) {
    case FakeCall::Kind::kReduce:
      return MoveReduce(from, to);
    case FakeCall::Kind::kBroadcast:
      return MoveBroadcast(from, to);
    case FakeCall::Kind::kGather:
      return MoveGather(from, to);
    case FakeCall::Kind::kScatter:
      return MoveScatter(from, to);
    case FakeCall::Kind::kReduceScatter:
      return MoveReduceScatter(from, to);
    case FakeCall::Kind::kAllToAll:
      return MoveAllToAll(from, to);
    case FakeCall::Kind::kBarrier:
      return;
  }
}

}  // namespace rankwise
