// How a model is cut into stages, and in which order the stages work.
#ifndef RANKWISE_TRAINERS_PIPELINE_CONFIG_H_
#define RANKWISE_TRAINERS_PIPELINE_CONFIG_H_

#include <cstdint>
#include <string>

namespace rankwise {

struct PipelineConfig {
  // A name of ScheduleNames(), or the absolute path of a CSV file.
  std::string schedule = "1f1b";
  int ranks = 0;              // p, of one pipeline; 0: all ranks / replicas
  int replicas = 1;           // of the pipeline
  int64_t micro_batches = 8;  // m, per optimizer step and replica
  int chunks = 0;             // v, stages per rank; 0: the schedule's own
  // Where to cut: layers, parameters, flops or time (equal shares of each), or
  // the first layer of every stage but the first ("2,5").
  std::string split = "flops";
  bool recompute = false;  // keep stage inputs only, run forwards again
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PIPELINE_CONFIG_H_
