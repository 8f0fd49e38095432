// The random numbers of generated datasets: the same on every machine, starting
// at any index.
#ifndef RANKWISE_SAMPLERS_DATASETS_SPLIT_MIX_H_
#define RANKWISE_SAMPLERS_DATASETS_SPLIT_MIX_H_

#include <cstdint>

namespace rankwise {

// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom
// number generators, 2014): a bijection that turns a counter into random bits.
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Increment of SplitMix64's counter: 2^64 divided by the golden ratio.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

// Mixes another number into a hash.
constexpr uint64_t MixIn(uint64_t hash, uint64_t number) {
  return Mix(hash + number + kSplitMixStep);
}

// The generator: Mix of a counter that starts at a key.
class SplitMix {
 public:
  explicit SplitMix(uint64_t key) : counter_(key) {}
  uint64_t Next() { return Mix(counter_ += kSplitMixStep); }
  // Returns a value in 0 .. bound - 1, for bounds far below 2^32.
  uint64_t Below(uint64_t bound) { return ((Next() >> 32) * bound) >> 32; }

 private:
  uint64_t counter_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_SPLIT_MIX_H_
