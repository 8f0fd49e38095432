// How much of what the devices could compute a training used.

#ifndef ANALYSIS_MODEL_FLOPS_H_
#define ANALYSIS_MODEL_FLOPS_H_

#include "analysis/cell.h"

namespace rankwise {

// Model FLOPs utilisation (Chowdhery et al. 2022, "PaLM", appendix B): the
// operations that training the model needs, three times those of its forward
// pass, at the cell's examples per second, over the peak of all its devices
// that --peak_tflops states. The backward pass counts as two forward ones; what
// is computed again (--recompute) does not count. NaN where the runs do not
// record the model's operations, or state no peak or several.
double ModelFlopsUtilization(const Cell& cell);

}  // namespace rankwise

#endif  // ANALYSIS_MODEL_FLOPS_H_
