#ifndef RANKWISE_SAMPLERS_SAMPLING_EPOCH_GUARD_H_
#define RANKWISE_SAMPLERS_SAMPLING_EPOCH_GUARD_H_

#include <string>
#include <utility>

namespace rankwise {

// Notices that a shuffled epoch begins without set_epoch since the last one,
// which silently trains on the same order again, and warns (c10's warning
// handler, by default stderr) the first time that happens.
class EpochGuard {
 public:
  // `sampler` is the class name that the warning says.
  explicit EpochGuard(std::string sampler) : sampler_(std::move(sampler)) {}

  // To be called by set_epoch.
  void EpochChosen() { epoch_used_ = false; }
  // To be called whenever a shuffled order is handed out.
  void EpochUsed();

 private:
  const std::string sampler_;
  bool epoch_used_ = false;
  bool warned_ = false;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_SAMPLING_EPOCH_GUARD_H_
