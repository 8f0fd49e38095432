// A study described by a file: JSON in which comments are allowed, a key for
// every flag.
//
//   {
//     // Data parallelism only, three sizes.
//     "trainers": ["single", "ddp"],
//     "world_sizes": [1, 2, 4],
//     "repetitions": 7
//   }
//
// Every study writes its own such file, study.json, into its folder.

#ifndef ANALYSIS_STUDY_CONFIG_FILE_H_
#define ANALYSIS_STUDY_CONFIG_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rankwise {

struct ConfigKey {
  enum class Type {
    kBool,
    kWhole,  // a whole number
    kText,
    kList,  // a list of texts or whole numbers, or a text as on a command line
  };
  std::string name;  // of the flag
  Type type = Type::kText;
  char separator = ',';  // between the items of a list on the command line
};

// Which code planned the study, and for which machine: the key "study", which
// only the study itself writes.
struct StudyOrigin {
  std::string schema_version;
  std::string source_hash;  // as in RunRecord
  std::string cpu_model;
  int64_t cores = 0;
  int64_t threads_per_rank = 1;
};

struct ConfigFile {
  // Flag -> its value as on the command line.
  std::map<std::string, std::string> values;
  std::optional<StudyOrigin> origin;
};

// Refuses, naming `source` and the line or key: what is no JSON, a key that is
// none of `keys` or occurs twice, and a value of another type.
absl::StatusOr<ConfigFile> ParseConfig(absl::string_view text,
                                       absl::string_view source,
                                       absl::Span<const ConfigKey> keys);

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path,
                                          absl::Span<const ConfigKey> keys);

// Of a config that CheckWritable accepts. Parses back to the same. In the order
// of `keys`; values that are missing are left out.
std::string ConfigToJson(const ConfigFile& config,
                         absl::Span<const ConfigKey> keys);

// Fails, naming the flag, where a value is not UTF-8, which JSON cannot hold.
absl::Status CheckWritable(const ConfigFile& config);

// What `now` has otherwise than `before`, "--repetitions is 3, and was 5", in
// the order of the flags' names.
std::vector<std::string> Differences(
    const std::map<std::string, std::string>& before,
    const std::map<std::string, std::string>& now);

// Fails, naming every difference, where the study that `folder` describes is
// not the one that `now` does: its runs would not be repetitions of these.
// `force` lets another version of the code or another machine pass.
absl::Status CheckSameStudy(const ConfigFile& folder, const ConfigFile& now,
                            bool force);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_CONFIG_FILE_H_
