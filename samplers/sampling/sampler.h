#ifndef RANKWISE_SAMPLERS_SAMPLING_SAMPLER_H_
#define RANKWISE_SAMPLERS_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <vector>

namespace rankwise {

// Which examples one rank sees in one epoch, and in which order.
//
// Not thread-safe: one thread owns a sampler.
class Sampler {
 public:
  virtual ~Sampler() = default;

  // This epoch's dataset indices for this rank. A function of the sampler's
  // configuration and its epoch alone: asking again without set_epoch gives the
  // same order, of which a shuffling sampler warns, once.
  virtual std::vector<int64_t> Indices() = 0;
  // The length of Indices(), the same in every epoch.
  virtual int64_t size() const = 0;
  // Chooses the epoch that the next Indices() is for. Epoch 0 at first.
  virtual void set_epoch(int64_t epoch) = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_SAMPLING_SAMPLER_H_
