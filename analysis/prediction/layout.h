// One way to spread a training step over ranks.

#ifndef ANALYSIS_PREDICTION_LAYOUT_H_
#define ANALYSIS_PREDICTION_LAYOUT_H_

#include <cstdint>
#include <string>

namespace rankwise {

// One way to train on dp * pp ranks.
struct Layout {
  int64_t dp = 1;
  int64_t pp = 1;
  int64_t batch_per_rank = 0;  // examples; of a pipeline, per micro-batch
  int64_t micro_batches = 1;
  std::string schedule = "";  // of pp > 1
  double bucket_bytes = 0;    // of DDP's all-reduces; 0: as recorded

  int64_t world_size() const { return dp * pp; }
  std::string Name() const;  // "ddp x8", "1f1b pp 4 x dp 2, 8 micro-batches"
};

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_LAYOUT_H_
