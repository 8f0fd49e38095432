#include "analysis/study/study_description.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace rankwise {
namespace {

// The keys of StudyDescription::origin that --resume compares, with their
// names in messages.
constexpr std::pair<const char*, const char*> kCompared[] = {
    {"source_hash", "the source's hash"},
    {"schema_version", "the records' version"},
    {"cpu_model", "the CPU"},
    {"cores", "the number of cores"}};

// "" where it is not known.
std::string OriginOf(const StudyDescription& study, const std::string& key) {
  const auto entry = study.origin.find(key);
  return entry == study.origin.end() ? "" : entry->second;
}

// What may change under --force. Where the source is unknown, the runs'
// records decide.
std::vector<std::string> OriginDifferences(const StudyDescription& before,
                                           const StudyDescription& now) {
  std::vector<std::string> differences;
  for (const auto& [key, name] : kCompared) {
    const std::string was = OriginOf(before, key), is = OriginOf(now, key);
    if (was == is || was.empty() || is.empty()) continue;
    differences.push_back(absl::StrCat(name, " is ", is, ", and was ", was));
  }
  return differences;
}

// Adds what a line says; false: it is no line of a flagfile.
bool AddLine(absl::string_view line, StudyDescription* description) {
  line = absl::StripLeadingAsciiWhitespace(line);
  if (absl::ConsumePrefix(&line, "#")) {
    const std::pair<absl::string_view, absl::string_view> entry =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    description->origin[std::string(absl::StripAsciiWhitespace(entry.first))] =
        std::string(absl::StripAsciiWhitespace(entry.second));
    return true;
  }
  if (line.empty()) return true;
  if (!absl::ConsumePrefix(&line, "--") || !absl::StrContains(line, '=')) {
    return false;
  }
  const std::pair<std::string, std::string> flag =
      absl::StrSplit(line, absl::MaxSplits('=', 1));
  description->flags[flag.first] = flag.second;
  return true;
}

}  // namespace

std::string StudyFilePath(const std::string& dir) {
  return absl::StrCat(dir, "/study.flags");
}

absl::StatusOr<std::string> FlagfileText(const StudyDescription& description) {
  std::string text;
  for (const auto& [key, value] : description.origin) {
    absl::StrAppend(&text, "# ", key, ": ", value, "\n");
  }
  for (const auto& [name, value] : description.flags) {
    if (absl::StrContains(value, '\n')) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name,
                       ": its value holds a line break, and study.flags could "
                       "not hold it: use another name"));
    }
    absl::StrAppend(&text, "--", name, "=", value, "\n");
  }
  return text;
}

absl::StatusOr<StudyDescription> ReadFlagfile(const std::string& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  StudyDescription description;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (AddLine(line, &description)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", number, ": expected --flag=value"));
  }
  return description;
}

std::vector<std::string> Differences(
    const std::map<std::string, std::string>& before,
    const std::map<std::string, std::string>& now) {
  std::vector<std::string> differences;
  for (const auto& [name, value] : now) {
    const auto was = before.find(name);
    if (was == before.end() || was->second == value) continue;
    differences.push_back(absl::StrCat(
        "--", name, " is ", value.empty() ? "empty" : value, ", and was ",
        was->second.empty() ? "empty" : was->second));
  }
  return differences;
}

absl::Status CheckSameStudy(const StudyDescription& folder,
                            const StudyDescription& now, bool force) {
  const std::vector<std::string> flags = Differences(folder.flags, now.flags);
  if (!flags.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--resume: this is another study than the one in the folder: ",
        absl::StrJoin(flags, "; "),
        ": leave these flags out, or choose another --output_dir"));
  }
  const std::vector<std::string> origin = OriginDifferences(folder, now);
  if (force || origin.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume: the study was begun otherwise: ", absl::StrJoin(origin, "; "),
      ": start another study, or pass --force to mix the two"));
}

}  // namespace rankwise
