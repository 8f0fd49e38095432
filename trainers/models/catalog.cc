#include "trainers/models/catalog.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rankwise {
namespace {

// The fields of ModelConfig that some models have no use for, as flags: name
// and value; "" or "0" where it is not given.
std::vector<std::pair<std::string, std::string>> OptionsOf(
    const ModelConfig& config) {
  return {{"model_size", config.size},
          {"depth", absl::StrCat(config.depth)},
          {"width", absl::StrCat(config.width)},
          {"sequence_length", absl::StrCat(config.sequence_length)},
          {"dropout", absl::StrCat(config.dropout)},
          {"tied_head", config.tied_head ? "" : "false"}};
}

struct Entry {
  const char* name;
  absl::StatusOr<ModelSpec> (*make)(const ModelConfig& config);
  std::set<std::string> options;  // the flags that it has a use for
};

const std::vector<Entry>& Entries() {
  static const auto* const kEntries = new std::vector<Entry>{
      {"simple_cnn", SimpleCnnSpec, {}},
      {"linear", LinearSpec, {}},
      {"mp_mlp", MpMlpSpec, {}},
      {"mlp", MlpSpec, {"depth", "width"}},
      {"gpt",
       GptSpec,
       {"model_size", "depth", "width", "sequence_length", "dropout",
        "tied_head"}},
      {"vit", VitSpec, {"model_size", "depth", "width", "dropout"}},
      {"simple_cnn_bn", SimpleCnnSpec, {}},
  };
  return *kEntries;
}

absl::Status Refuse(const Entry& entry, const std::string& flag,
                    const std::string& value) {
  std::vector<std::string> takers;
  for (const Entry& other : Entries()) {
    if (other.options.count(flag) > 0) takers.push_back(other.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", value, ": --model=", entry.name,
      " has no use for it; only for --model=", absl::StrJoin(takers, ", ")));
}

}  // namespace

absl::Status CheckSizeFlag(const char* flag, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": must be between 1 and ", most,
                   ", or 0 for the model's own"));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const Entry& entry : Entries()) names.push_back(entry.name);
  return names;
}

absl::StatusOr<ModelSpec> MakeModelSpec(const ModelConfig& config) {
  for (const Entry& entry : Entries()) {
    if (config.name != entry.name) continue;
    for (const auto& [flag, value] : OptionsOf(config)) {
      const bool given = !value.empty() && value != "0";
      if (given && entry.options.count(flag) == 0)
        return Refuse(entry, flag, value);
    }
    return entry.make(config);
  }
  return absl::NotFoundError(absl::StrCat(
      "--model=", config.name,
      ": no such model; known: ", absl::StrJoin(ModelNames(), ", ")));
}

}  // namespace rankwise
