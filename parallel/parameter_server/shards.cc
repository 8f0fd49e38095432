#include "parallel/parameter_server/shards.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace rankwise {

at::Tensor Joined(const std::vector<NamedTensor>& buffers) {
  std::vector<at::Tensor> flat = {at::empty({0}, at::kFloat)};
  for (const NamedTensor& each : buffers)
    flat.push_back(each.tensor.detach().flatten().to(at::kCPU, at::kFloat));
  return at::cat(flat);
}

void Divide(const at::Tensor& joined, const std::vector<NamedTensor>& buffers) {
  const at::NoGradGuard no_grad;
  int64_t offset = 0;
  for (const NamedTensor& each : buffers) {
    at::Tensor buffer = each.tensor;
    buffer.copy_(joined.narrow(0, offset, buffer.numel()).view(buffer.sizes()));
    offset += buffer.numel();
  }
}

ShardLayout::ShardLayout(std::vector<NamedTensor> parameters, int servers,
                         int64_t bucket_bytes)
    : parameters_(std::move(parameters)), servers_(servers) {
  int64_t bytes = bucket_bytes;  // so that the first parameter opens a bucket
  for (size_t i = 0; i < parameters_.size(); ++i) {
    TORCH_CHECK(
        !parameters_[i].sparse_gradient, parameters_[i].name,
        " has sparse gradients, which parameter servers do not support");
    TORCH_CHECK(parameters_[i].tensor.dim() > 0, parameters_[i].name,
                " is a scalar: parameter servers divide parameters along their "
                "first dimension");
    if (bytes >= bucket_bytes) {
      buckets_.push_back({i, i});
      bytes = 0;
    }
    buckets_.back().end = i + 1;
    bucket_of_.push_back(buckets_.size() - 1);
    bytes += static_cast<int64_t>(parameters_[i].tensor.nbytes());
  }
}

ShardLayout::Rows ShardLayout::RowsAt(int server, size_t parameter) const {
  const at::Tensor& whole = parameters_[parameter].tensor;
  const int64_t all = whole.size(0);
  const int64_t chunk = (all + servers_ - 1) / servers_;
  Rows rows;
  rows.begin = std::min(server * chunk, all);
  rows.count = std::min(chunk, all - rows.begin);
  if (rows.count > 0) rows.numbers = rows.count * (whole.numel() / all);
  return rows;
}

std::vector<at::Tensor> ShardLayout::Allocate(int server) const {
  std::vector<at::Tensor> memory;
  for (const Range& range : buckets_) {
    int64_t numbers = 0;
    for (size_t i = range.begin; i < range.end; ++i)
      numbers += RowsAt(server, i).numbers;
    memory.push_back(at::empty({numbers}, at::kFloat));
  }
  return memory;
}

void ShardLayout::ForEach(int server, size_t bucket, const at::Tensor& memory,
                          const Visit& visit) const {
  int64_t offset = 0;
  for (size_t i = buckets_[bucket].begin; i < buckets_[bucket].end; ++i) {
    const Rows rows = RowsAt(server, i);
    if (rows.count == 0) continue;
    std::vector<int64_t> shape = parameters_[i].tensor.sizes().vec();
    shape[0] = rows.count;
    visit(i, rows.begin, memory.narrow(0, offset, rows.numbers).view(shape));
    offset += rows.numbers;
  }
}

void ShardLayout::ForAll(int server, const std::vector<at::Tensor>& memory,
                         const Visit& visit) const {
  for (size_t bucket = 0; bucket < memory.size(); ++bucket)
    ForEach(server, bucket, memory[bucket], visit);
}

void ShardLayout::FromParameters(int server, size_t bucket,
                                 const at::Tensor& memory) const {
  const at::NoGradGuard no_grad;
  ForEach(server, bucket, memory,
          [&](size_t i, int64_t begin, const at::Tensor& rows) {
            rows.copy_(parameters_[i].tensor.narrow(0, begin, rows.size(0)));
          });
}

void ShardLayout::ToParameters(int server, size_t bucket,
                               const at::Tensor& memory) const {
  const at::NoGradGuard no_grad;
  ForEach(server, bucket, memory,
          [&](size_t i, int64_t begin, const at::Tensor& rows) {
            parameters_[i].tensor.narrow(0, begin, rows.size(0)).copy_(rows);
          });
}

}  // namespace rankwise
