#include "comm_bench/sweep/relaunch.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/sweep/launches.h"
#include "records/record.h"
#include "records/record_reader.h"

namespace rankwise::comm_bench {
namespace {

// The file that the launches' samples go to: the user's, or one of our own that
// ends with this object.
class SampleFile {
 public:
  explicit SampleFile(const std::string& users) : path_(users) {
    if (!path_.empty()) return;
    std::error_code ignored;
    path_ = (std::filesystem::temp_directory_path(ignored) /
             "comm_bench_XXXXXX.jsonl")
                .string();
    const int fd = ::mkstemps(path_.data(), 6);
    own_ = fd >= 0;
    if (own_) {
      ::close(fd);
    } else {
      path_.clear();
    }
  }
  ~SampleFile() {
    std::error_code ignored;
    if (own_) std::filesystem::remove(path_, ignored);
  }
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;

  const std::string& path() const { return path_; }
  bool ok() const { return own_ || !path_.empty(); }

 private:
  std::string path_;
  bool own_ = false;
};

// The runs of a file by their ids; none where there is no such file yet.
std::set<std::string> RunsIn(const std::string& path) {
  std::set<std::string> runs;
  (void)VisitRecords(path, {.tolerate_torn_lines = true},
                     [&runs](const Record& record) {
                       if (const auto* run = std::get_if<RunRecord>(&record))
                         runs.insert(run->run_id);
                       return absl::OkStatus();
                     });
  return runs;
}

// The samples of all runs but `earlier`.
absl::StatusOr<std::vector<CollectiveRecord>> SamplesIn(
    const std::string& path, const std::set<std::string>& earlier) {
  std::vector<CollectiveRecord> samples;
  std::set<int64_t> ours;  // ranks whose latest run is not an earlier one
  const auto visited = VisitRecords(
      path, {.tolerate_torn_lines = true}, [&](const Record& record) {
        if (const auto* run = std::get_if<RunRecord>(&record)) {
          if (earlier.contains(run->run_id)) {
            ours.erase(run->rank);
          } else {
            ours.insert(run->rank);
          }
        }
        const auto* row = std::get_if<CollectiveRecord>(&record);
        if (row != nullptr && ours.contains(row->rank)) samples.push_back(*row);
        return absl::OkStatus();
      });
  if (!visited.ok()) return visited.status();
  return samples;
}

int LaunchOnce(int number, const std::string& samples,
               const LaunchConfig& launch, int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  words.push_back(absl::StrCat("--launch=", number));
  words.push_back(absl::StrCat("--record=", samples));
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return LaunchRanks(launch, static_cast<int>(words.size()), pointers.data());
}

// The launches before number `ended`.
absl::Status Compare(const std::string& path,
                     const std::set<std::string>& earlier, int ended) {
  auto samples = SamplesIn(path, earlier);
  if (!samples.ok()) return samples.status();
  std::erase_if(*samples, [ended](const CollectiveRecord& row) {
    return row.launch >= ended;
  });
  const auto spreads = CompareLaunches(*samples);
  if (!spreads.ok()) return spreads.status();
  std::printf("\n%s", FormatLaunches(*spreads).c_str());
  return absl::OkStatus();
}

}  // namespace

int Relaunch(const BenchConfig& config, const LaunchConfig& launch, int argc,
             char** argv) {
  const SampleFile file(config.record_file);
  if (!file.ok()) {
    std::fprintf(stderr,
                 "comm_bench: error: no file can be made in the temporary "
                 "folder; name one by --record\n");
    return 1;
  }
  const std::set<std::string> earlier = RunsIn(file.path());
  int code = 0;
  int ended = 0;
  while (code == 0 && ended < config.relaunch) {
    code = LaunchOnce(ended, file.path(), launch, argc, argv);
    if (code == 0) ++ended;
  }
  // What has ended is compared also when the others never will.
  if (ended < 2) return code;
  const absl::Status compared = Compare(file.path(), earlier, ended);
  if (compared.ok()) return code;
  std::fprintf(stderr, "comm_bench: error: %s\n",
               std::string(compared.message()).c_str());
  return code == 0 ? 1 : code;
}

}  // namespace rankwise::comm_bench
