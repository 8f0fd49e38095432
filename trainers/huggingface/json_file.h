// Internal to this folder.
#ifndef RANKWISE_TRAINERS_HUGGINGFACE_JSON_FILE_H_
#define RANKWISE_TRAINERS_HUGGINGFACE_JSON_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace rankwise {

// Returns the JSON value in the file `path`, without values that are nested
// deeply, as no known field is; a discarded value for text that is not JSON.
// Errors are those of ReadTextFile, with the path.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_HUGGINGFACE_JSON_FILE_H_
