#include "trainers/huggingface/json_file.h"

#include "absl/strings/str_cat.h"
#include "records/text_file.h"

namespace rankwise {
namespace {

using Json = nlohmann::json;

// Bounds the recursion of the JSON library.
bool DropDeepValues(int depth, Json::parse_event_t, Json&) {
  constexpr int kDeepest = 16;
  return depth < kDeepest;
}

}  // namespace

absl::StatusOr<Json> ReadJsonFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat(path, ": ", text.status().message()));
  }
  return Json::parse(*text, DropDeepValues, /*allow_exceptions=*/false);
}

}  // namespace rankwise
