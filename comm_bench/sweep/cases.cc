// The calls of a sweep: the combinations of its flags, and their sizes.

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_join.h"
#include "comm_bench/sweep/plan.h"
#include "comm_bench/sweep/refuse.h"
#include "records/text.h"

namespace rankwise::comm_bench {
namespace {

// Returns the elements that MPI counts in an `int`: those of a rank's part; for
// an all-to-all, whose parts have offsets and which cannot run in place, all
// elements.
int64_t CountedByMpi(const Collective& collective, const Call& call) {
  return collective.in_place
             ? call.count / collective.granularity(call.world_size)
             : call.count;
}

// Returns what the backend lacks for a call that other backends support, or "".
// `largest` is the sweep's largest call.
std::string WhyBackendLacks(const SweepCase& item, const Call& largest,
                            const Job& job) {
  if (job.backend != "mpi") return "";
  const std::string call =
      absl::StrCat(item.collective->name, " of ", DtypeName(item.dtype));
  if (item.collective->reduces && item.op == ReduceOp::AVG) {
    return absl::StrCat(call, " with op avg: --backend=mpi reduces by sum, ",
                        "prod, min and max only; measure sum");
  }
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const int64_t count = CountedByMpi(*item.collective, largest);
  if (count <= kMost) return "";
  return absl::StrCat(call, ": --backend=mpi carries at most ", kMost,
                      " elements in a call, not ", count,
                      "; measure smaller sizes");
}

std::vector<bool> InPlaceOrNot(const BenchConfig& config,
                               const Collective& collective) {
  if (!collective.has_elements) return {false};
  if (config.place == "auto") return {collective.prefers_in_place};
  if (config.place != "both") return {config.place == "in"};
  if (!collective.in_place) return {false};
  return {false, true};
}

// Returns all combinations, whether they can run or not.
std::vector<SweepCase> Combinations(const BenchConfig& config) {
  std::vector<SweepCase> cases;
  for (const Collective* collective : config.collectives) {
    const auto dtypes = collective->has_elements
                            ? config.dtypes
                            : std::vector<c10::ScalarType>{config.dtypes[0]};
    const auto ops =
        collective->reduces ? config.ops : std::vector<ReduceOp>{config.ops[0]};
    for (const c10::ScalarType dtype : dtypes) {
      for (const ReduceOp op : ops) {
        for (const bool in_place : InPlaceOrNot(config, *collective))
          cases.push_back({collective, dtype, op, in_place});
      }
    }
  }
  return cases;
}

std::string RoundedNote(const BenchConfig& config, int64_t bytes,
                        const Call& call) {
  const int64_t rounded = call.bytes();
  if (call.count == 0 || rounded == bytes ||
      (rounded < bytes && !config.sizes_given)) {
    return "";
  }
  return absl::StrCat("# ", Counted(bytes, "byte"), ": measured as ", rounded,
                      ", rounded to whole elements per rank\n");
}

}  // namespace

absl::Status CheckCase(const SweepCase& item, const BenchConfig& config,
                       const Job& job, const Plan& plan) {
  const Collective& collective = *item.collective;
  const std::string name = collective.name;
  const Call call = CallOf(item, config, plan, config.sizes[0]);
  const int64_t largest =
      *std::max_element(config.sizes.begin(), config.sizes.end());
  const std::string lacking =
      WhyBackendLacks(item, CallOf(item, config, plan, largest), job);
  if (!lacking.empty()) return Refuse(lacking);
  if (config.measure.in_flight > 1 && collective.calls_per_iteration > 1) {
    return Refuse(name, " with --in_flight=", config.measure.in_flight,
                  ": a message waits for the one before it; leave out ",
                  "--in_flight");
  }
  if (config.measure.graph && !collective.has_elements) {
    return Refuse(name, " with --cuda_graph: c10d makes the host wait in it, ",
                  "which cannot be recorded; leave out --cuda_graph");
  }
  if (config.layer == "hierarchical") {
    if (name != "all_reduce" || !plan.groups.empty()) {
      return Refuse(name,
                    " with --layer=hierarchical: only all_reduce among all ",
                    "ranks is supported; use --layer=c10d");
    }
    if (item.op != ReduceOp::SUM || !c10::isFloatingType(item.dtype)) {
      return Refuse("all_reduce of ", DtypeName(item.dtype), " with op ",
                    OpName(item.op), ": --layer=hierarchical sums ",
                    "floating-point numbers only; use --layer=c10d");
    }
    return CheckCall(collective, call);
  }
  if (config.layer != "c10d" && collective.nccl_calls == nullptr) {
    return Refuse(name, " with --layer=", config.layer,
                  ": nccl.h has no such call; measure it with --layer=c10d");
  }
  return CheckCall(collective, call);
}

absl::Status AddCases(const BenchConfig& config, const Job& job,
                      CaseCheck check, Plan& plan) {
  for (const SweepCase& item : Combinations(config)) {
    const absl::Status possible = check(item, config, job, plan);
    if (possible.ok()) {
      plan.cases.push_back(item);
    } else if (config.skip_unsupported) {
      plan.left_out.emplace_back(possible.message());
    } else {
      return possible;
    }
  }
  if (!plan.cases.empty()) return absl::OkStatus();
  return Refuse("nothing is left to measure: ",
                absl::StrJoin(plan.left_out, "; "));
}

std::vector<int64_t> GeometricSizes(int64_t min, int64_t max, double factor) {
  std::vector<int64_t> sizes;
  for (double size = min; size < max; size *= factor) {
    const int64_t rounded = static_cast<int64_t>(size);
    if (sizes.empty() || rounded > sizes.back()) sizes.push_back(rounded);
  }
  sizes.push_back(max);
  return sizes;
}

Call CallOf(const SweepCase& item, const BenchConfig& config, const Plan& plan,
            int64_t bytes) {
  const int world_size = plan.traffic.world_size();
  Call call;
  call.count = CountFor(*item.collective, bytes, item.dtype, world_size);
  call.dtype = item.dtype;
  call.op = item.op;
  call.root = item.collective->rooted ? config.root : 0;
  call.in_place = item.in_place;
  call.world_size = world_size;
  call.traffic = &plan.traffic;
  return call;
}

std::vector<SizedCall> CallsOf(const SweepCase& item, const BenchConfig& config,
                               const Plan& plan) {
  if (!item.collective->has_elements)
    return {{.call = CallOf(item, config, plan, 0), .note = ""}};
  std::vector<SizedCall> calls;
  int64_t last_count = -1;
  for (const int64_t bytes : config.sizes) {
    const Call call = CallOf(item, config, plan, bytes);
    // Several small sizes may be rounded to the smallest divisible one.
    const bool repeats = std::exchange(last_count, call.count) == call.count;
    const std::string note =
        repeats ? absl::StrCat("# ", bytes, " bytes: as the row above",
                               ", rounded to whole elements per rank\n")
                : RoundedNote(config, bytes, call);
    calls.push_back({call, note, repeats});
  }
  return calls;
}

}  // namespace rankwise::comm_bench
