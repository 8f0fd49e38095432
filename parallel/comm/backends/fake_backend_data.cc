#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

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

// Reduces `copies` equal tensors in one operation.
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

// Splits each buffer into one part per rank.
std::vector<Tensor> PartsOf(const std::vector<Tensor>& buffers,
                            size_t world_size) {
  std::vector<Tensor> parts;
  for (const Tensor& buffer : buffers) {
    const auto split =
        buffer.view({static_cast<int64_t>(world_size), -1}).unbind(0);
    parts.insert(parts.end(), split.begin(), split.end());
  }
  return parts;
}

// The `index`-th input of a rank, or `index`-th part of its whole inputs.
Tensor InputPart(const Ranks& from, size_t rank, size_t index) {
  const FakeCall& call = *from[rank];
  if (!call.whole_inputs) return call.inputs.at(index);
  const auto world_size = static_cast<int64_t>(from.size());
  const auto part = static_cast<int64_t>(index);
  return call.inputs.at(part / world_size)
      .view({world_size, -1})
      .select(0, part % world_size);
}

using InputOf = std::function<Tensor(size_t rank)>;

// Reduces the inputs of all ranks.
Tensor Reduce(const Ranks& from, const InputOf& input) {
  const ReduceOp::RedOpType op = from[0]->op;
  const auto world_size = static_cast<int64_t>(from.size());
  const Tensor first = input(0);
  if (Mirrored(from)) {
    return CombineCopies(first, world_size, op).to(first.scalar_type());
  }
  Tensor sum = first;
  for (size_t rank = 1; rank < from.size(); ++rank) {
    const Tensor next = input(rank);
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

// Returns the source of output `index` of rank `to`; not for kReduce.
Tensor Source(const Ranks& from, int to, size_t index) {
  const FakeCall& call = *from[to];
  switch (call.kind) {
    case FakeCall::Kind::kBroadcast:
      return from[call.root]->inputs.at(index);
    case FakeCall::Kind::kGather:
      return InputPart(from, index % from.size(), index / from.size());
    case FakeCall::Kind::kScatter:
      return from[call.root]->inputs.at(to);
    case FakeCall::Kind::kReduceScatter:
      return Reduce(from, [&](size_t rank) {
        return InputPart(from, rank, index * from.size() + to);
      });
    case FakeCall::Kind::kAllToAll:
      return InputPart(from, index, to);
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
    case FakeCall::Kind::kScatter:  // a mirrored non-root rank has no slices
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

bool All(const Ranks& from, bool FakeCall::*property) {
  return std::all_of(
      from.begin(), from.end(),
      [property](const FakeCall* call) { return call->*property; });
}

// Stacks the `index`-th inputs of all ranks, one row per rank.
Tensor StackInputs(const Ranks& from, size_t index) {
  std::vector<Tensor> inputs;
  for (const FakeCall* call : from)
    inputs.push_back(call->inputs.at(index).reshape({-1}));
  return at::stack(inputs);
}

// Returns the source of a buffer of rank `to`.
using SourceOf = std::function<Tensor(int to)>;

// Returns the source of the `index`-th buffer of every rank, or nullptr if the
// W * W parts must be moved one by one.
SourceOf WholeSource(const Ranks& from, size_t index) {
  const auto world_size = static_cast<int64_t>(from.size());
  const FakeCall::Kind kind = from[0]->kind;
  const auto input = [&](size_t rank) { return from[rank]->inputs.at(index); };
  if (kind == FakeCall::Kind::kReduce)
    return [sum = Reduce(from, input)](int) { return sum; };
  if (Mirrored(from)) return nullptr;
  const bool inputs = All(from, &FakeCall::whole_inputs);
  const bool outputs = All(from, &FakeCall::whole_outputs);
  if (kind == FakeCall::Kind::kGather && outputs)
    return [all = StackInputs(from, index)](int) { return all; };
  if (kind == FakeCall::Kind::kReduceScatter && inputs) {
    return [sum = Reduce(from, input).view({world_size, -1})](int to) {
      return sum.select(0, to);
    };
  }
  if (kind == FakeCall::Kind::kAllToAll && inputs && outputs) {
    const Tensor all = StackInputs(from, index);
    return [all = all.view({world_size, world_size, -1})](int to) {
      return all.select(1, to);
    };
  }
  return nullptr;
}

// Returns the source of each buffer, or nothing if the parts must be moved one
// by one.
std::vector<SourceOf> WholeSources(const Ranks& from) {
  std::vector<SourceOf> sources;
  for (size_t i = 0; i < from[0]->inputs.size(); ++i) {
    SourceOf source = WholeSource(from, i);
    if (source == nullptr) return {};
    sources.push_back(std::move(source));
  }
  return sources;
}

void MoveParts(const Ranks& from, int to) {
  const FakeCall& call = *from[to];
  const bool parts_may_differ =
      call.kind == FakeCall::Kind::kAllToAll && Mirrored(from);
  const std::vector<Tensor> targets =
      call.whole_outputs ? PartsOf(call.outputs, from.size()) : call.outputs;
  for (size_t i = 0; i < targets.size(); ++i) {
    const Tensor source = Source(from, to, i);
    if (parts_may_differ) {
      CopyPrefix(source, targets[i]);
    } else {
      Copy(call, source, targets[i]);
    }
  }
}

}  // namespace

void MoveFakeData(const std::vector<const FakeCall*>& from,
                  const std::vector<int>& to) {
  // Without autograd, like other backends.
  const at::NoGradGuard no_grad;
  // Created before any output is written, which may be another rank's input.
  const std::vector<SourceOf> sources = WholeSources(from);
  for (const int rank : to) {
    if (!Receives(from, rank)) continue;
    const FakeCall& call = *from[rank];
    if (sources.empty()) {
      MoveParts(from, rank);
      continue;
    }
    for (size_t i = 0; i < call.outputs.size(); ++i)
      Copy(call, sources.at(i)(rank), call.outputs[i]);
  }
}

}  // namespace rankwise
