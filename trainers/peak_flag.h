// --peak: the reference peak of the run's device.
#ifndef RANKWISE_TRAINERS_PEAK_FLAG_H_
#define RANKWISE_TRAINERS_PEAK_FLAG_H_

#include <string>

#include "parallel/launch/comm_flags.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"

namespace rankwise {

void CheckPeakFlag(FlagChecks& checks);

// Sets config.output.peak of this rank, whose device and threads must be set.
// If the host's peak is not stored yet, the first rank to call measures it
// while the others sleep. Returns a line for the console: the peak, or the
// reason why it could not be measured.
std::string SetPeak(const Worker& worker, TrainConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_FLAG_H_
