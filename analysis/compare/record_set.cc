#include "analysis/compare/record_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/cell.h"
#include "analysis/compare/call_configurations.h"
#include "analysis/compare/trainer_configurations.h"

namespace rankwise {
namespace {

std::string MadeBy(const RunRecord& run) {
  return absl::StrCat(CommitText(run), ", torch ", run.versions.torch, ", ",
                      run.host.cpu_model);
}

// What differs in nothing else is told apart by the CPU.
void TellApart(std::vector<Configuration>& configurations) {
  std::map<std::string, std::set<std::string>> cpus;
  for (const Configuration& c : configurations) cpus[c.name].insert(c.cpus);
  for (Configuration& c : configurations) {
    if (cpus[c.name].size() > 1) absl::StrAppend(&c.name, ", ", c.cpus);
  }
}

}  // namespace

RecordSet MeasureRecordSet(absl::Span<const RunTrace> runs,
                           const RecordSetConfig& config) {
  RecordSet set;
  set.runs = runs.size();
  set.left_out = TornLines(runs);
  set.configurations =
      TrainerConfigurations(runs, config.throughput, &set.left_out);
  for (Configuration& row :
       CallConfigurations(runs, config.calls, &set.left_out)) {
    set.configurations.push_back(std::move(row));
  }
  TellApart(set.configurations);
  for (const RunTrace& run : runs) {
    if (run.ranks.empty()) continue;
    set.run_ids.insert(run.ranks[0].run.run_id);
    const std::string by = MadeBy(run.ranks[0].run);
    if (std::find(set.made_by.begin(), set.made_by.end(), by) ==
        set.made_by.end()) {
      set.made_by.push_back(by);
    }
  }
  return set;
}

absl::Status CheckCode(const RecordSet& set) {
  for (const Configuration& configuration : set.configurations) {
    const std::string doubt = WhyNotOneCode(configuration.code_versions);
    if (doubt.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(set.path, ": the repetitions of ", configuration.name, " ",
                     doubt, "; --force compares them anyway"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordSet> LoadRecordSet(const std::string& path,
                                        const RecordSetConfig& config) {
  const absl::StatusOr<std::vector<std::string>> files = RecordFilesIn(path);
  if (!files.ok()) return files.status();
  const absl::StatusOr<std::vector<RunTrace>> runs = LoadRunsFrom(*files);
  if (!runs.ok()) return runs.status();
  RecordSet set = MeasureRecordSet(*runs, config);
  set.path = path;
  if (!set.configurations.empty()) return set;
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": nothing in these records can be compared",
      set.left_out.empty() ? "" : ": ", absl::StrJoin(set.left_out, "; ")));
}

}  // namespace rankwise
