#include <functional>

#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"

ABSL_FLAG(std::string, collectives, "all_reduce",
          "names separated by commas, or all");
ABSL_FLAG(std::string, dtypes, "float32",
          "float32, float64, float16, bfloat16, int32, int64, uint8, or all");
ABSL_FLAG(std::string, ops, "sum", "sum, avg, min, max, prod, or all");
ABSL_FLAG(std::string, place, "auto", "in, out or both; auto: as c10d does");
ABSL_FLAG(int, root, 0, "root rank of broadcast, reduce, gather and scatter");

namespace rankwise::comm_bench {
namespace {

// Parses a list of names; "all" selects `all`.
template <typename T>
std::vector<T> ReadList(
    const char* flag, const std::string& text, const std::vector<T>& all,
    const std::function<absl::StatusOr<T>(const std::string&)>& read,
    FlagChecks& checks) {
  if (text == "all") return all;
  std::vector<T> items;
  for (const std::string& name : SplitNames(text)) {
    absl::StatusOr<T> item = read(name);
    if (item.ok()) {
      items.push_back(*std::move(item));
    } else {
      checks.Complain(
          absl::StrCat("--", flag, "=", text, ": ", item.status().message()));
    }
  }
  return items;
}

}  // namespace

void ReadCalls(BenchConfig& config, FlagChecks& checks) {
  const std::string collectives = absl::GetFlag(FLAGS_collectives);
  const std::string dtypes = absl::GetFlag(FLAGS_dtypes);
  const std::string ops = absl::GetFlag(FLAGS_ops);
  config.skip_unsupported =
      collectives == "all" || dtypes == "all" || ops == "all";
  config.collectives = ReadList<const Collective*>(
      "collectives", collectives, AllCollectives(), FindCollective, checks);
  config.dtypes = ReadList<c10::ScalarType>("dtypes", dtypes, AllDtypes(),
                                            ParseDtype, checks);
  config.ops = ReadList<ReduceOp>("ops", ops, AllOps(), ParseOp, checks);
  config.place = absl::GetFlag(FLAGS_place);
  checks.OneOf("place", config.place, {"auto", "in", "out", "both"});
  config.root = absl::GetFlag(FLAGS_root);
  checks.InRange("root", config.root, 0);
}

}  // namespace rankwise::comm_bench
