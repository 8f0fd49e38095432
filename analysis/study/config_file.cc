#include "analysis/study/config_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;
using Type = ConfigKey::Type;

constexpr char kOrigin[] = "study";

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// "[json.exception.parse_error.101] parse error at line 3, column 5: ..."
// without its first word.
std::string WithoutExceptionName(const std::string& what) {
  const size_t end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}

// The parser itself takes the last of equal keys without a word.
absl::StatusOr<Json> ParseJson(absl::string_view text,
                               absl::string_view source) {
  std::set<std::string> seen;
  std::string twice;
  const auto watch_keys = [&](int depth, Json::parse_event_t event,
                              Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      const auto key = parsed.get<std::string>();
      if (!seen.insert(key).second) twice = key;
    }
    return true;
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), watch_keys,
                            /*allow_exceptions=*/true,
                            /*ignore_comments=*/true);
    if (!twice.empty()) return Bad(source, ": \"", twice, "\" is given twice");
    if (!json.is_object()) {
      return Bad(source, ": expected an object, { \"flag\": value, ... }");
    }
    return json;
  } catch (const Json::exception& error) {
    return Bad(source, ": ", WithoutExceptionName(error.what()));
  }
}

// A text or a whole number as on the command line.
bool ItemText(const Json& item, std::string* text) {
  if (item.is_string()) {
    *text = item.get<std::string>();
  } else if (item.is_number_integer()) {
    *text = item.dump();
  }
  return item.is_string() || item.is_number_integer();
}

bool ListText(const Json& list, char separator, std::string* text) {
  if (list.is_string()) return ItemText(list, text);
  if (!list.is_array()) return false;
  std::vector<std::string> items(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (!ItemText(list[i], &items[i])) return false;
  }
  *text = absl::StrJoin(items, std::string(1, separator));
  return true;
}

// The value as on the command line; false: it is of another type.
bool ValueText(const Json& value, const ConfigKey& key, std::string* text) {
  switch (key.type) {
    case Type::kBool:
      if (value.is_boolean()) *text = value.get<bool>() ? "true" : "false";
      return value.is_boolean();
    case Type::kWhole:
      return value.is_number_integer() && ItemText(value, text);
    case Type::kText:
      return value.is_string() && ItemText(value, text);
    case Type::kList:
      return ListText(value, key.separator, text);
  }
  return false;
}

absl::string_view TypeName(Type type) {
  switch (type) {
    case Type::kBool:
      return "true or false";
    case Type::kWhole:
      return "a whole number";
    case Type::kText:
      return "a text in quotes";
    case Type::kList:
      return "a list of texts or whole numbers, or a text";
  }
  return "";
}

absl::StatusOr<StudyOrigin> ParseOrigin(const Json& json,
                                        absl::string_view source) {
  StudyOrigin origin;
  try {
    json.at("schema_version").get_to(origin.schema_version);
    origin.source_hash = json.value("source_hash", "");  // none before 1.5
    json.at("cpu_model").get_to(origin.cpu_model);
    json.at("cores").get_to(origin.cores);
    json.at("threads_per_rank").get_to(origin.threads_per_rank);
  } catch (const Json::exception& error) {
    return Bad(source, ": \"", kOrigin, "\" is written by the study itself: ",
               WithoutExceptionName(error.what()));
  }
  return origin;
}

Json ValueJson(const std::string& text, const ConfigKey& key) {
  int64_t number = 0;
  switch (key.type) {
    case Type::kBool:
      return text == "true";
    case Type::kWhole:
      if (absl::SimpleAtoi(text, &number)) return number;
      return Json::parse(text);
    case Type::kText:
      return text;
    case Type::kList:
      break;
  }
  Json list = Json::array();
  for (const std::string& item : std::vector<std::string>(
           absl::StrSplit(text, key.separator, absl::SkipEmpty()))) {
    if (absl::SimpleAtoi(item, &number)) {
      list.push_back(number);
    } else {
      list.push_back(item);
    }
  }
  return list;
}

// On one line, with spaces between the items.
std::string Line(const Json& value) {
  std::vector<std::string> items;
  for (const auto& [name, item] : value.items()) {
    items.push_back(value.is_object()
                        ? absl::StrCat(Json(name).dump(), ": ", item.dump())
                        : item.dump());
  }
  const std::string joined = absl::StrJoin(items, ", ");
  if (value.is_object()) return absl::StrCat("{", joined, "}");
  return value.is_array() ? absl::StrCat("[", joined, "]") : value.dump();
}

// What may change under --force. Where the source is unknown, the runs'
// records decide.
std::vector<std::string> OriginDifferences(const StudyOrigin& before,
                                           const StudyOrigin& now) {
  std::vector<std::string> differences;
  const auto compare = [&differences](absl::string_view what, const auto& was,
                                      const auto& is) {
    if (was == is) return;
    differences.push_back(absl::StrCat(what, " is ", is, ", and was ", was));
  };
  if (!before.source_hash.empty() && !now.source_hash.empty()) {
    compare("the source's hash", before.source_hash, now.source_hash);
  }
  compare("the records' version", before.schema_version, now.schema_version);
  compare("the CPU", before.cpu_model, now.cpu_model);
  compare("the number of cores", before.cores, now.cores);
  return differences;
}

}  // namespace

absl::StatusOr<ConfigFile> ParseConfig(absl::string_view text,
                                       absl::string_view source,
                                       absl::Span<const ConfigKey> keys) {
  const absl::StatusOr<Json> json = ParseJson(text, source);
  if (!json.ok()) return json.status();
  ConfigFile config;
  for (const auto& [name, value] : json->items()) {
    if (name == kOrigin) {
      absl::StatusOr<StudyOrigin> origin = ParseOrigin(value, source);
      if (!origin.ok()) return origin.status();
      config.origin = *std::move(origin);
      continue;
    }
    const auto key = std::find_if(
        keys.begin(), keys.end(),
        [&name = name](const ConfigKey& k) { return k.name == name; });
    if (key == keys.end()) {
      return Bad(source, ": \"", name, "\" is unknown; expected one of ",
                 absl::StrJoin(keys, ", ",
                               [](std::string* out, const ConfigKey& known) {
                                 out->append(known.name);
                               }));
    }
    if (!ValueText(value, *key, &config.values[name])) {
      return Bad(source, ": \"", name, "\": ", value.dump(), " is not ",
                 TypeName(key->type));
    }
  }
  return config;
}

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path,
                                          absl::Span<const ConfigKey> keys) {
  std::ifstream file(path);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (!file || std::filesystem::is_directory(path)) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  return ParseConfig(text.str(), path, keys);
}

absl::Status CheckWritable(const ConfigFile& config) {
  for (const auto& [name, value] : config.values) {
    try {
      Json(value).dump();
    } catch (const Json::exception&) {
      return Bad("--", name, ": ", absl::CHexEscape(value),
                 " is not UTF-8, and study.json could not hold it: use another "
                 "name");
    }
  }
  return absl::OkStatus();
}

std::string ConfigToJson(const ConfigFile& config,
                         absl::Span<const ConfigKey> keys) {
  Json json = Json::object();
  if (config.origin.has_value()) {
    json[kOrigin] = {{"schema_version", config.origin->schema_version},
                     {"source_hash", config.origin->source_hash},
                     {"cpu_model", config.origin->cpu_model},
                     {"cores", config.origin->cores},
                     {"threads_per_rank", config.origin->threads_per_rank}};
  }
  for (const ConfigKey& key : keys) {
    const auto value = config.values.find(key.name);
    if (value == config.values.end()) continue;
    json[key.name] = ValueJson(value->second, key);
  }
  std::vector<std::string> lines;
  for (const auto& [name, value] : json.items()) {
    lines.push_back(absl::StrCat("  ", Json(name).dump(), ": ", Line(value)));
  }
  return absl::StrCat("{\n", absl::StrJoin(lines, ",\n"), "\n}\n");
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

absl::Status CheckSameStudy(const ConfigFile& folder, const ConfigFile& now,
                            bool force) {
  const std::vector<std::string> flags = Differences(folder.values, now.values);
  if (!flags.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--resume: this is another study than the one in the folder: ",
        absl::StrJoin(flags, "; "),
        ": leave these flags out, or choose another --output_dir"));
  }
  if (force || !folder.origin.has_value() || !now.origin.has_value()) {
    return absl::OkStatus();
  }
  const std::vector<std::string> origin =
      OriginDifferences(*folder.origin, *now.origin);
  if (origin.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume: the study was begun otherwise: ", absl::StrJoin(origin, "; "),
      ": start another study, or pass --force to mix the two"));
}

}  // namespace rankwise
