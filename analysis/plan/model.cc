#include "analysis/plan/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rankwise::plan {
namespace {

constexpr int64_t kMost = int64_t{1} << 24;

const std::vector<Model>& KnownModels() {
  static const auto* const models =
      new std::vector<Model>{{"nano", 4, 128, 4, 128, 256, true, true},
                             {"micro", 4, 256, 4, 256, 256, true, true},
                             {"mini", 6, 384, 6, 256, 256, true, true},
                             {"small", 8, 512, 8, 512, 256, true, true},
                             {"gpt2", 12, 768, 12, 1024, 50257, true, true},
                             {"megatron-22b", 48, 6144, 64, 2048, 51200},
                             {"gpt3-175b", 96, 12288, 96, 2048, 51200},
                             {"turing-530b", 105, 20480, 128, 2048, 51200},
                             {"megatron-1t", 128, 25600, 160, 2048, 51200}};
  return *models;
}

}  // namespace

double Model::BlockWeights() const {
  return 12.0 * static_cast<double>(width) * static_cast<double>(width);
}

double Model::BlockParameters() const {
  return BlockWeights() + 13.0 * static_cast<double>(width);
}

double Model::Parameters() const {
  const auto w = static_cast<double>(width);
  const double embedding = static_cast<double>(vocabulary) * w;
  return static_cast<double>(blocks) * BlockParameters() +
         (tied_head ? 1 : 2) * embedding + static_cast<double>(sequence) * w +
         2 * w;
}

double Model::BlockFlops() const {
  const auto s = static_cast<double>(sequence);
  return 2 * s * (BlockWeights() + 2 * s * static_cast<double>(width));
}

double Model::HeadFlops() const {
  return 2.0 * static_cast<double>(sequence) * static_cast<double>(width) *
         static_cast<double>(vocabulary);
}

double Model::ForwardFlops() const {
  return static_cast<double>(blocks) * BlockFlops() + HeadFlops();
}

absl::Status CheckModel(const Model& model) {
  const std::pair<const char*, int64_t> numbers[] = {
      {"layers", model.blocks},
      {"width", model.width},
      {"heads", model.heads},
      {"sequence_length", model.sequence},
      {"vocabulary", model.vocabulary}};
  for (const auto& [name, number] : numbers) {
    if (number >= 1 && number <= kMost) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, "=", number, ": must be from 1 to ", kMost));
  }
  if (model.width % model.heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--width=", model.width,
                   ": must be a multiple of --heads=", model.heads));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const Model& model : KnownModels()) names.push_back(model.name);
  return names;
}

absl::StatusOr<Model> NamedModel(absl::string_view name) {
  for (const Model& model : KnownModels()) {
    if (model.name == name) return model;
  }
  return absl::NotFoundError(absl::StrCat(
      "--model=", name, ": not known; known are ",
      absl::StrJoin(ModelNames(), ", "),
      "; or give --layers, --width, --heads, --sequence_length and "
      "--vocabulary"));
}

}  // namespace rankwise::plan
