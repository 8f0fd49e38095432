#include <algorithm>
#include <cstdint>

#include "ATen/Functions.h"
#include "ATen/core/grad_mode.h"
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

// What output `index` of rank `to` is filled with; not for kReduce.
Tensor Source(const Ranks& from, int to, size_t index) {
  const FakeCall& call = *from[to];
  switch (call.kind) {
    case FakeCall::Kind::kBroadcast:
      return from[call.root]->inputs.at(index);
    case FakeCall::Kind::kGather:
      return from[index % from.size()]->inputs.at(index / from.size());
    case FakeCall::Kind::kScatter:
      return from[call.root]->inputs.at(to);
    case FakeCall::Kind::kReduceScatter:
      return Reduce(from, index * from.size() + to);
    case FakeCall::Kind::kAllToAll:
      return from[index]->inputs.at(to);
    default:
      TORCH_CHECK(false, call.name, " moves no data");
  }
}

// Whether any output of rank `to` is written.
bool Receives(const Ranks& from, int to) {
  const FakeCall& call = *from[to];
  switch (call.kind) {
    case FakeCall::Kind::kReduce:
    case FakeCall::Kind::kGather:
      return call.root < 0 || call.root == to;
    case FakeCall::Kind::kBroadcast:
      return call.root != to;
    case FakeCall::Kind::kScatter:  // without slices: mirrored, and not the
                                    // root
      return !Mirrored(from) || !call.inputs.empty();
    default:
      return true;
  }
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

}  // namespace

void MoveFakeData(const std::vector<const FakeCall*>& from,
                  const std::vector<int>& to) {
  // As other backends do, without autograd.
  const at::NoGradGuard no_grad;
  const FakeCall::Kind kind = from[0]->kind;
  // Computed before any output is written: it may be another rank's input.
  std::vector<Tensor> reduced;
  if (kind == FakeCall::Kind::kReduce) {
    for (size_t i = 0; i < from[0]->inputs.size(); ++i) {
      reduced.push_back(Reduce(from, i));
    }
  }
  const bool parts_may_differ =
      kind == FakeCall::Kind::kAllToAll && Mirrored(from);
  for (const int rank : to) {
    if (!Receives(from, rank)) continue;
    const FakeCall& call = *from[rank];
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const Tensor source =
          reduced.empty() ? Source(from, rank, i) : reduced.at(i);
      if (parts_may_differ) {
        CopyPrefix(source, call.outputs[i]);
      } else {
        Copy(call, source, call.outputs[i]);
      }
    }
  }
}

}  // namespace rankwise
