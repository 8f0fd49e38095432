#include "parallel/comm/slurm.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace rankwise {

bool IsSlurmRank(const SlurmLookup& lookup) {
  if (!lookup("SLURM_PROCID").has_value()) return false;
  int tasks = 0;
  const std::optional<std::string> step = lookup("SLURM_STEP_NUM_TASKS");
  // One task is how `srun --pty bash` and salloc's interactive step look.
  if (step.has_value()) return !absl::SimpleAtoi(*step, &tasks) || tasks > 1;
  if (*lookup("SLURM_PROCID") != "0") return true;
  return lookup("MASTER_ADDR").has_value() &&
         lookup("SLURM_NTASKS").has_value();
}

std::string SlurmWorldSizeName(const SlurmLookup& lookup) {
  return lookup("SLURM_STEP_NUM_TASKS").has_value() ? "SLURM_STEP_NUM_TASKS"
                                                    : "SLURM_NTASKS";
}

std::optional<int> EntryOfCountList(absl::string_view list, int index) {
  for (absl::string_view part : absl::StrSplit(list, ',')) {
    int repeat = 1;
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(part, absl::MaxSplits("(x", 1));
    if (halves.first != part) {
      absl::string_view times = halves.second;
      if (!absl::ConsumeSuffix(&times, ")") ||
          !absl::SimpleAtoi(times, &repeat)) {
        return std::nullopt;
      }
    }
    int count = 0;
    if (!absl::SimpleAtoi(halves.first, &count)) return std::nullopt;
    if (index < repeat) return count;
    index -= repeat;
  }
  return std::nullopt;
}

absl::StatusOr<int> SlurmLocalWorldSize(const SlurmLookup& lookup,
                                        int world_size) {
  int node = 0;
  if (!absl::SimpleAtoi(lookup("SLURM_NODEID").value_or("0"), &node)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank environment: SLURM_NODEID='",
                     *lookup("SLURM_NODEID"), "' is not a number"));
  }
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
                           "SLURM_NTASKS_PER_NODE"}) {
    const std::optional<std::string> list = lookup(name);
    if (!list.has_value()) continue;
    const bool same_on_all = absl::string_view(name) == "SLURM_NTASKS_PER_NODE";
    const std::optional<int> count =
        EntryOfCountList(*list, same_on_all ? 0 : node);
    if (count.has_value()) return *count;
    return absl::InvalidArgumentError(
        absl::StrCat("rank environment: ", name, "='", *list,
                     "' does not say how many tasks node ", node, " runs"));
  }
  if (lookup("SLURM_NNODES").value_or("1") == "1") return world_size;
  return absl::InvalidArgumentError(absl::StrCat(
      "rank environment: SLURM_NNODES=", *lookup("SLURM_NNODES"),
      ", but neither SLURM_STEP_TASKS_PER_NODE nor SLURM_NTASKS_PER_NODE is "
      "set, so the number of local ranks is unknown; use srun "
      "--ntasks-per-node=N"));
}

std::string FirstOfNodeList(absl::string_view list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t close = list.find(']', i);
    if (close == absl::string_view::npos) return "";
    const absl::string_view ranges = list.substr(i + 1, close - i - 1);
    absl::StrAppend(&host, ranges.substr(0, ranges.find_first_of(",-")));
    i = close;
  }
  return host;
}

std::string SlurmFirstHost(const SlurmLookup& lookup) {
  for (const char* name :
       {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const std::optional<std::string> list = lookup(name);
    if (list.has_value()) return FirstOfNodeList(*list);
  }
  return "";
}

std::string SlurmStepId(const SlurmLookup& lookup) {
  const std::optional<std::string> job = lookup("SLURM_JOB_ID");
  if (!job.has_value()) return "";
  return absl::StrCat(*job, ".", lookup("SLURM_STEP_ID").value_or("0"));
}

}  // namespace rankwise
