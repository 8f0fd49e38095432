#include "trainers/models/catalog.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rankwise {
namespace {

// A field of ModelConfig that some models have no use for.
struct Option {
  const char* flag;
  bool given;
  std::string value;
};

std::vector<Option> OptionsOf(const ModelConfig& config) {
  return {
      {"model_size", !config.size.empty(), config.size},
      {"depth", config.depth != 0, absl::StrCat(config.depth)},
      {"width", config.width != 0, absl::StrCat(config.width)},
      {"sequence_length", config.sequence_length != 0,
       absl::StrCat(config.sequence_length)},
      {"dropout", config.dropout != 0, absl::StrCat(config.dropout)},
      {"tied_head", !config.tied_head, config.tied_head ? "true" : "false"}};
}

struct Entry {
  const char* name;
  absl::StatusOr<ModelSpec> (*make)(const ModelConfig& config);
  std::vector<std::string> options;  // the flags that it has a use for
};

const std::vector<Entry>& Entries() {
  static const auto* const kEntries = new std::vector<Entry>{
      {"simple_cnn",
       [](const ModelConfig&) -> absl::StatusOr<ModelSpec> {
         return SimpleCnnSpec(/*batch_norm=*/false);
       },
       {}},
      {"linear",
       [](const ModelConfig&) -> absl::StatusOr<ModelSpec> {
         return LinearSpec();
       },
       {}},
      {"mp_mlp",
       [](const ModelConfig&) -> absl::StatusOr<ModelSpec> {
         return MpMlpSpec();
       },
       {}},
      {"mlp", MlpSpec, {"depth", "width"}},
      {"gpt",
       GptSpec,
       {"model_size", "depth", "width", "sequence_length", "dropout",
        "tied_head"}},
      {"vit", VitSpec, {"model_size", "depth", "width", "dropout"}},
      {"simple_cnn_bn",
       [](const ModelConfig&) -> absl::StatusOr<ModelSpec> {
         return SimpleCnnSpec(/*batch_norm=*/true);
       },
       {}},
  };
  return *kEntries;
}

bool Takes(const Entry& entry, const char* flag) {
  for (const std::string& option : entry.options) {
    if (option == flag) return true;
  }
  return false;
}

absl::Status Refuse(const Option& option, const Entry& entry) {
  std::vector<std::string> takers;
  for (const Entry& other : Entries()) {
    if (Takes(other, option.flag)) takers.push_back(other.name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--", option.flag, "=", option.value, ": --model=", entry.name,
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
    for (const Option& option : OptionsOf(config)) {
      if (option.given && !Takes(entry, option.flag))
        return Refuse(option, entry);
    }
    return entry.make(config);
  }
  return absl::NotFoundError(absl::StrCat(
      "--model=", config.name,
      ": no such model; known: ", absl::StrJoin(ModelNames(), ", ")));
}

}  // namespace rankwise
