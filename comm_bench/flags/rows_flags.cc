#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"
#include "records/command_line.h"

ABSL_FLAG(std::string, across, "slowest",
          "combination of the ranks' times of one iteration: slowest, transfer "
          "(last start to last end), makespan (first start to last end), mean");
ABSL_FLAG(std::string, csv, "", "file to append the table's rows to");

namespace rankwise::comm_bench {

void ReadRows(BenchConfig& config, FlagChecks& checks) {
  ReadChoice("across", absl::GetFlag(FLAGS_across),
             {{"slowest", Across::kSlowest},
              {"transfer", Across::kTransfer},
              {"makespan", Across::kMakespan},
              {"mean", Across::kMean}},
             config.measure.timing.across, checks);
  config.csv_file = UserPath(absl::GetFlag(FLAGS_csv));
  checks.FileOrNew("csv", config.csv_file);
}

}  // namespace rankwise::comm_bench
