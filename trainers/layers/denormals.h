#ifndef RANKWISE_TRAINERS_LAYERS_DENORMALS_H_
#define RANKWISE_TRAINERS_LAYERS_DENORMALS_H_

namespace rankwise {

// Makes this thread, and threads that it starts from now on, compute with zeros
// instead of denormal numbers (torch.set_flush_denormal), which take ten times
// as long on Intel's CPUs. They are common: Adam's means for weights whose
// gradients stay zero shrink by a tenth per step, and become denormal after
// some hundred steps. Their contribution to a weight rounds to zero. Call
// before the first tensor is created, since the intra-op threads persist.
void FlushDenormals();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_DENORMALS_H_
