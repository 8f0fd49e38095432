// Writes a synthetic study, to measure the cost of summarising it:
//   bazel run //analysis/runs:make_study -- --output_dir=/tmp/million
//   /usr/bin/time -v bazel-bin/analysis/study/study --from=/tmp/million
// or, with --layouts, one that compares layouts of ranks, to inspect its
// report.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/runs/made_layouts_for_test.h"
#include "analysis/runs/made_study_for_test.h"
#include "analysis/runs/run_trace.h"
#include "analysis/text/program.h"
#include "records/command_line.h"

ABSL_FLAG(std::string, output_dir, "", "new folder for the record files");
ABSL_FLAG(int64_t, records, 1'000'000,
          "minimum number of step and schedule records");
ABSL_FLAG(bool, layouts, false,
          "layouts of 4 ranks on a slow link instead; ignores --records");
ABSL_FLAG(uint64_t, seed, 0, "seed of the noise of the steps");

namespace rankwise {
namespace {

absl::Status MakeStudy() {
  const MadeStudyConfig config = {.records = absl::GetFlag(FLAGS_records),
                                  .seed = absl::GetFlag(FLAGS_seed)};
  if (config.records < 1) {
    return absl::InvalidArgumentError("--records: expected 1 or more");
  }
  const std::string dir = UserPath(absl::GetFlag(FLAGS_output_dir));
  if (dir.empty()) {
    return absl::InvalidArgumentError("--output_dir: name a new folder");
  }
  if (RecordFilesIn(dir).ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat("--output_dir=", dir, ": holds records already"));
  }
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("--output_dir=", dir, ": ", error.message()));
  }
  if (absl::GetFlag(FLAGS_layouts)) {
    return WriteLayoutStudy(dir,
                            {.link_bytes_per_second = 1e9, .seed = config.seed})
        .status();
  }
  return WriteMadeStudy(dir, config);
}

constexpr char kUsage[] =
    "Writes the records of a synthetic study, to measure the time to summarise "
    "one.\n"
    "  bazel run //analysis/runs:make_study -- --output_dir=/tmp/million";

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  return rankwise::RunProgram({"make_study", rankwise::kUsage, "analysis/runs/",
                               "--output_dir=/tmp/million"},
                              argc, argv, rankwise::MakeStudy);
}
