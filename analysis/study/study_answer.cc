#include "analysis/study/study_answer.h"

#include <algorithm>
#include <memory>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/answer_text.h"
#include "analysis/report/report.h"

namespace rankwise {
namespace {

// "Scaling study, 2026-01-31": run ids begin with the day.
std::string Title(const std::vector<RunTrace> &runs) {
  std::string first;
  for (const RunTrace &run : runs) {
    const std::string &id = run.ranks[0].run.run_id;
    if (first.empty() || id < first) first = id;
  }
  if (first.size() < 8) return "Scaling study";
  return absl::StrCat("Scaling study, ", first.substr(0, 4), "-",
                      first.substr(4, 2), "-", first.substr(6, 2));
}

}  // namespace

absl::Status GiveAnswer(std::vector<RunTrace> runs,
                        const StudyAnswerConfig &config, std::ostream &out) {
  const ReportConfig report = {Title(runs), config.plotly_js, config.command};
  AnswerConfig analysis;
  analysis.throughput.warmup_steps = config.warmup_steps;
  analysis.force = config.force;
  analysis.allow_oversubscribed = config.oversubscribe;
  const std::unique_ptr<Answer> answer = Analyze(std::move(runs), analysis);
  out << AnswerText(*answer) << std::flush;
  if (answer->cells.empty() && answer->calls.empty()) {
    return absl::FailedPreconditionError(
        "nothing in the records could be measured");
  }
  if (config.report_path.empty()) return absl::OkStatus();
  return WriteReport(*answer, report, config.report_path);
}

}  // namespace rankwise
