#ifndef RANKWISE_TRAINERS_LOOP_STEP_BYTES_H_
#define RANKWISE_TRAINERS_LOOP_STEP_BYTES_H_

#include <cstdint>

#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

// Returns the bytes of an activation in `precision`.
double ValueBytes(Precision precision);

// Returns the least bytes that one rank's step moves between its device and
// memory: those of its layers' passes (BytesOf), an equal share per rank of a
// pipeline, and those of the optimizer, which updates `owned_parameters`.
double StepBytes(const TrainConfig& config, const Worker& worker,
                 const ModelSpec& spec, int64_t owned_parameters);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_STEP_BYTES_H_
