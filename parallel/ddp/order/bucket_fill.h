// The assignment of gradients to buckets by c10d::Reducer, which
// DistributedDataParallel uses, once their order is known; //analysis/plan
// times the buckets.
#ifndef RANKWISE_PARALLEL_DDP_ORDER_BUCKET_FILL_H_
#define RANKWISE_PARALLEL_DDP_ORDER_BUCKET_FILL_H_

#include <cstdint>

namespace rankwise {

// The defaults of PyTorch and of DdpConfig.
inline constexpr int64_t kFirstBucketBytes = int64_t{1} << 20;
inline constexpr int64_t kBucketCapBytes = int64_t{25} << 20;

// Add the gradients of one dtype in the order in which backward computes them.
class BucketFill {
 public:
  explicit BucketFill(int64_t first_bucket_bytes = kFirstBucketBytes,
                      int64_t bucket_cap_bytes = kBucketCapBytes)
      : size_(first_bucket_bytes), cap_(bucket_cap_bytes) {}

  // Returns the size of the bucket that this gradient completes, or 0. A bucket
  // is complete once it reaches its limit, so its last gradient may exceed it.
  int64_t Add(int64_t bytes) {
    bytes_ += bytes;
    return bytes_ < size_ ? 0 : Take();
  }
  // Returns the bytes of the incomplete bucket; call last after all gradients.
  int64_t Take() {
    const int64_t bytes = bytes_;
    bytes_ = 0;
    size_ = cap_;
    return bytes;
  }

 private:
  int64_t size_;
  const int64_t cap_;
  int64_t bytes_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_ORDER_BUCKET_FILL_H_
