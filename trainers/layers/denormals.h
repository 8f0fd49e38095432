#ifndef RANKWISE_TRAINERS_LAYERS_DENORMALS_H_
#define RANKWISE_TRAINERS_LAYERS_DENORMALS_H_

namespace rankwise {

// Has this thread, and threads that it starts from now on, compute with zeros
// in place of denormal numbers (torch.set_flush_denormal), which Intel's CPUs
// take ten times as long for. They are common: Adam's means of weights whose
// gradients stay zero shrink by a tenth a step, and become denormal after some
// hundred steps. What they would add to a weight rounds to nothing. Call it
// before the first tensor, since the intra-op threads stay.
void FlushDenormals();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_DENORMALS_H_
