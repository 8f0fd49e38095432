// The division of parameters among servers, and the buckets to send.
#ifndef RANKWISE_PARALLEL_PARAMETER_SERVER_SHARDS_H_
#define RANKWISE_PARALLEL_PARAMETER_SERVER_SHARDS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/ddp/model_state.h"
#include "torch/types.h"

namespace rankwise {

// Joined concatenates the model's buffers into one message, fp32 on the host;
// Divide copies it back. Integers are exact up to 2^24.
at::Tensor Joined(const std::vector<NamedTensor>& buffers);
void Divide(const at::Tensor& joined, const std::vector<NamedTensor>& buffers);

// Each of n servers has ceil(d0 / n) rows of every parameter [d0, ...], the
// last servers fewer or none, as with ZeRO. A bucket is several consecutive
// parameters; each server's rows of it are one message.
class ShardLayout {
 public:
  // A bucket ends with the parameter that brings it to `bucket_bytes` or more.
  // Throws if a parameter has sparse gradients.
  ShardLayout(std::vector<NamedTensor> parameters, int servers,
              int64_t bucket_bytes);

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  int servers() const { return servers_; }
  size_t buckets() const { return buckets_.size(); }
  // Returns the bucket of the parameter with this index.
  size_t BucketOf(size_t parameter) const { return bucket_of_[parameter]; }

  // Allocates the buckets of `server`: 1-D, fp32, on the host; some may be
  // empty.
  std::vector<at::Tensor> Allocate(int server) const;

  // Calls `visit` for each parameter of a bucket of which `server` has rows,
  // with the parameter's index, the first row, and a view of the rows in
  // `memory`.
  using Visit = std::function<void(size_t parameter, int64_t begin,
                                   const at::Tensor& rows)>;
  void ForEach(int server, size_t bucket, const at::Tensor& memory,
               const Visit& visit) const;
  // As ForEach, for all buckets.
  void ForAll(int server, const std::vector<at::Tensor>& memory,
              const Visit& visit) const;

  // Copy between the parameters and the memory of one bucket.
  void FromParameters(int server, size_t bucket,
                      const at::Tensor& memory) const;
  void ToParameters(int server, size_t bucket, const at::Tensor& memory) const;

 private:
  struct Range {
    size_t begin = 0, end = 0;  // parameters
  };
  // The rows of a parameter that one server has.
  struct Rows {
    int64_t begin = 0, count = 0;
    int64_t numbers = 0;  // in all of them
  };
  Rows RowsAt(int server, size_t parameter) const;

  const std::vector<NamedTensor> parameters_;
  const int servers_;
  std::vector<Range> buckets_;
  std::vector<size_t> bucket_of_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PARAMETER_SERVER_SHARDS_H_
