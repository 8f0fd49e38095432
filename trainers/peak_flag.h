// --peak: what the run's device is held to be able to do.
#ifndef RANKWISE_TRAINERS_PEAK_FLAG_H_
#define RANKWISE_TRAINERS_PEAK_FLAG_H_

#include <string>

#include "parallel/launch/comm_flags.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"

namespace rankwise {

void CheckPeakFlag(FlagChecks& checks);

// Sets config.output.peak of this rank, whose device and threads are settled:
// measures it where this host does not know it yet, before the first rank to
// ask goes on and while the others sleep. A line about it for the console; one
// that says why there is no peak, where it could not be measured.
std::string TakePeak(const Worker& worker, TrainConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PEAK_FLAG_H_
