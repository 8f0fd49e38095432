// What was measured of one configuration, a value per repetition.

#ifndef ANALYSIS_COMPARE_CONFIGURATION_H_
#define ANALYSIS_COMPARE_CONFIGURATION_H_

#include <limits>
#include <map>
#include <string>
#include <vector>

namespace rankwise {

// What counts as a repetition of a collective.
enum class CallUnit {
  kLaunch,     // a launch of the job: its median over the iterations
  kIteration,  // every iteration, as if those of a launch were independent
};

struct MetricSample {
  std::string metric;          // a name of kMetrics
  std::vector<double> values;  // one per repetition
  double step_seconds = 0;     // of a part of the step: the median of the step
};

// A cell of trainers, or a row of comm_bench, with its repetitions.
struct Configuration {
  std::string name;  // "ddp on 2 ranks, batch 32"
  std::string unit;  // "run", "launch", "iteration"
  // What it is; equal in configurations that are compared.
  std::map<std::string, std::string> identity;
  // Equal too, where both have the flag.
  std::map<std::string, std::string> flags;
  std::string cpus;  // that it ran on; may differ between A and B
  std::vector<std::string> code_versions;  // of its repetitions, each once
  std::vector<MetricSample> samples;
  // Of a row of comm_bench: CollectiveRecord::bus_factor.
  double bus_factor = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace rankwise

#endif  // ANALYSIS_COMPARE_CONFIGURATION_H_
