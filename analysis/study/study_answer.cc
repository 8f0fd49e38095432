#include "analysis/study/study_answer.h"

#include <ostream>

#include "analysis/scaling_report.h"

namespace rankwise {

void PrintAnswer(std::vector<RunTrace> runs, const StudyAnswerConfig& config,
                 std::ostream& out) {
  std::erase_if(runs, [](const RunTrace& run) {
    return run.ranks[0].run.binary == "comm_bench";
  });
  ScalingReportConfig report;
  report.throughput.warmup_steps = config.warmup_steps;
  out << ScalingReport(runs, report) << std::flush;
}

}  // namespace rankwise
