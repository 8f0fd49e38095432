#include "trainers/resume/initial_weights.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "third_party/absl/status_macros.h"
#include "trainers/huggingface/model_config.h"
#include "trainers/huggingface/weights_reader.h"
#include "trainers/resume/agreement.h"
#include "trainers/resume/run_state.h"

namespace rankwise {
namespace {

absl::Status ReadBlocks(const TrainConfig& config,
                        const std::vector<HeldBlock>& blocks) {
  ASSIGN_OR_RETURN(const HuggingFaceConfig dimensions,
                   HuggingFaceConfigOf(config.model));
  ASSIGN_OR_RETURN(const HuggingFaceWeights weights,
                   HuggingFaceWeights::Open(config.init_from, dimensions));
  for (const HeldBlock& held : blocks) {
    TensorBlock block = held.block;
    absl::string_view name = block.name;
    if (!absl::ConsumePrefix(&name, kModelPrefix)) continue;
    block.name = std::string(name);
    RETURN_IF_ERROR(weights.Read(block));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadInitialWeights(const TrainConfig& config, const Worker& worker,
                                const Model& model, const Optimizer& optimizer,
                                const ShardedState& sharded) {
  const absl::Status mine =
      ReadBlocks(config, HeldBlocks(worker, model, optimizer, sharded));
  return AgreeOnSuccess(
      "reading the initial weights",
      absl::Status(
          mine.code(),
          mine.ok() ? "" : absl::StrCat("--init_from: ", mine.message())),
      worker);
}

}  // namespace rankwise
