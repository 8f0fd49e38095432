#include "parallel/tensor/regions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/constant_pad_nd.h"
#include "absl/strings/str_cat.h"
#include "c10/core/WrapDimMinimal.h"
#include "parallel/autograd/once_differentiable.h"
#include "parallel/autograd/saved_value.h"
#include "parallel/comm/exchange.h"
#include "parallel/tensor/parts.h"
#include "records/text.h"
#include "torch/csrc/autograd/custom_function.h"

namespace rankwise {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The division of a region's tensors: `size` is the undivided size along `dim`.
struct Division {
  int64_t dim = 0;
  int64_t size = 0;
};

// A region's operation on activations or gradients.
using Change = torch::Tensor (*)(const torch::Tensor&, const Division&,
                                 const TensorParallel&);

torch::Tensor Itself(const torch::Tensor& x, const Division&,
                     const TensorParallel&) {
  return x;
}

torch::Tensor Sum(const torch::Tensor& x, const Division&,
                  const TensorParallel& tp) {
  return StartAllReduce(x.clone(at::MemoryFormat::Contiguous), tp.group,
                        tp.exposed)
      .Finish();
}

torch::Tensor Part(const torch::Tensor& x, const Division& division,
                   const TensorParallel& tp) {
  const auto [dim, size] = division;
  const int64_t part = PartSize(size, tp);
  const int64_t begin = std::min(tp.place() * part, size);
  const int64_t length = std::min(part, size - begin);
  std::vector<int64_t> pad(2 * (x.dim() - dim), 0);  // from the last dimension
  pad.back() = part - length;
  return at::constant_pad_nd(x.narrow(dim, begin, length), pad).contiguous();
}

torch::Tensor Gathered(const torch::Tensor& x, const Division& division,
                       const TensorParallel& tp) {
  return tensor::Unstack({StartAllGather(x, tp.group, tp.exposed).Finish()},
                         division.dim, division.size);
}

torch::Tensor PartOfSum(const torch::Tensor& x, const Division& division,
                        const TensorParallel& tp) {
  return StartReduceScatter(tensor::Stack(x, division.dim, tp), tp.group,
                            tp.exposed)
      .Finish();
}

struct Region {
  Change forward = nullptr;
  Change backward = nullptr;
  Division division;
};

class RegionFunction : public OnceDifferentiable<RegionFunction> {
 public:
  static constexpr char kName[] = "a region of tensor parallelism";

  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const Region& region, const TensorParallel& tp) {
    SaveValue(*ctx, tp);
    SaveValue(*ctx, region);
    return region.forward(x, region.division, tp);
  }

  static variable_list Gradients(AutogradContext* ctx,
                                 const variable_list& gradients) {
    const Region& region = SavedValue<Region>(*ctx);
    return {region.backward(gradients[0], region.division,
                            SavedValue<TensorParallel>(*ctx)),
            torch::Tensor(), torch::Tensor()};
  }
};

torch::Tensor Apply(Change forward, Change backward, const torch::Tensor& x,
                    const Division& division, const TensorParallel& tp) {
  if (tp.size() == 1) return x;
  const Division wrapped = {c10::maybe_wrap_dim(division.dim, x.dim()),
                            division.size};
  return RegionFunction::apply(x, Region{forward, backward, wrapped}, tp);
}

}  // namespace

absl::Status CheckDivides(const std::string& what, int64_t size, int ranks) {
  if (size % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tp=", ranks, ": ", size, " ", what, " do not divide among ", ranks,
      " ranks; ", DivisorsOf(size), size == 1 ? " does" : " do"));
}

torch::Tensor PartOf(const torch::Tensor& whole, int64_t dim,
                     const TensorParallel& tp) {
  return Part(whole.detach(),
              {c10::maybe_wrap_dim(dim, whole.dim()), whole.size(dim)}, tp);
}

torch::Tensor ReduceFromRanks(const torch::Tensor& x,
                              const TensorParallel& tp) {
  return Apply(Sum, Itself, x, {}, tp);
}

torch::Tensor ScatterToRanks(const torch::Tensor& x, int64_t dim,
                             const TensorParallel& tp) {
  return Apply(Part, Gathered, x, {dim, x.size(dim)}, tp);
}

torch::Tensor GatherFromRanks(const torch::Tensor& x, int64_t dim, int64_t size,
                              const TensorParallel& tp) {
  return Apply(Gathered, Part, x, {dim, size}, tp);
}

torch::Tensor ShareAmongRanks(const torch::Tensor& x, int64_t dim, int64_t size,
                              const TensorParallel& tp) {
  return Apply(Gathered, PartOfSum, x, {dim, size}, tp);
}

torch::Tensor ReduceScatterFromRanks(const torch::Tensor& x, int64_t dim,
                                     const TensorParallel& tp) {
  return Apply(PartOfSum, Gathered, x, {dim, x.size(dim)}, tp);
}

}  // namespace rankwise
