#ifndef RANKWISE_TRAINERS_LOOP_STEP_BYTES_H_
#define RANKWISE_TRAINERS_LOOP_STEP_BYTES_H_

#include <cstdint>

#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

// Of an activation in `precision`.
double ValueBytes(Precision precision);

// Bytes that a step of one rank moves between its device and memory at least:
// those of its layers' passes (BytesOf), of a pipeline's rank an equal share,
// and those of the optimizer, which updates `owned_parameters` of its.
double StepBytes(const TrainConfig& config, const Worker& worker,
                 const ModelSpec& spec, int64_t owned_parameters);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_STEP_BYTES_H_
