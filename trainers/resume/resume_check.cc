#include "trainers/resume/resume_check.h"

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;

// Settings determined by several flags.
constexpr char kDataParallelRanks[] = "data-parallel ranks";
constexpr char kCosineSteps[] = "steps of the cosine";

// Their product is the number of examples per step.
constexpr const char* kStepSettings[] = {"batch_size", "accumulate",
                                         kDataParallelRanks};

std::string AccumulateFlag(const Worker& worker) {
  const bool in_stages =
      worker.trainer == "pipeline" || worker.trainer == "hybrid";
  return in_stages ? "--microbatches" : "--accumulate";
}

// Returns a setting as the user gave it: "--lr=0.1", "--model=gpt".
std::string AsTyped(const std::string& key, const Json& value,
                    const Worker& worker) {
  const std::string text =
      value.is_string() ? value.get<std::string>() : value.dump();
  if (key == kCosineSteps || key == kDataParallelRanks)
    return absl::StrCat(key, "=", text);
  return absl::StrCat(
      key == "accumulate" ? AccumulateFlag(worker) : absl::StrCat("--", key),
      "=", text);
}

// Returns the setting `key`, or `otherwise` if the checkpoint lacks it.
Json ValueOr(const Json& settings, const std::string& key,
             const Json& otherwise) {
  return settings.contains(key) ? settings[key] : otherwise;
}

int64_t NumberOf(const Json& value) {
  int64_t number = 1;
  if (value.is_number_integer()) return value.get<int64_t>();
  return value.is_string() &&
                 absl::SimpleAtoi(value.get<std::string>(), &number)
             ? number
             : 1;
}

// "--batch_size=8, --accumulate=2, data-parallel ranks=4" and their product.
struct StepSize {
  std::string text;
  int64_t examples = 1;
};

StepSize StepSizeOf(const Json& settings, const Json& otherwise,
                    const Worker& worker) {
  StepSize size;
  std::vector<std::string> typed;
  for (const char* key : kStepSettings) {
    const Json value = ValueOr(settings, key, ValueOr(otherwise, key, 1));
    typed.push_back(AsTyped(key, value, worker));
    size.examples *= NumberOf(value);
  }
  size.text = absl::StrJoin(typed, ", ");
  return size;
}

// Returns advice on the flags that give this run's steps `examples` examples.
std::string FlagsFor(int64_t examples, const TrainConfig& config,
                     const Worker& worker) {
  const int64_t batch = config.data.batch_size * worker.data_ranks();
  const int64_t micro_batches = config.accumulate * worker.data_ranks();
  std::vector<std::string> fitting;
  if (examples % micro_batches == 0)
    fitting.push_back(absl::StrCat("--batch_size=", examples / micro_batches));
  if (examples % batch == 0) {
    fitting.push_back(
        absl::StrCat(AccumulateFlag(worker), "=", examples / batch));
  }
  return fitting.empty()
             ? absl::StrCat("give ranks, --batch_size and ",
                            AccumulateFlag(worker), " whose product is ",
                            examples)
             : absl::StrCat("give ", absl::StrJoin(fitting, " or "));
}

absl::Status CheckStepSize(const Json& saved, const Json& now,
                           const TrainConfig& config, const Worker& worker) {
  const StepSize before = StepSizeOf(saved, now, worker);
  const StepSize here = StepSizeOf(now, now, worker);
  if (before.examples == here.examples) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume: the checkpoint was made with ", before.examples,
      " examples per step (", before.text, "), this run has ", here.examples,
      " (", here.text, "); ", FlagsFor(before.examples, config, worker),
      ", or give another --checkpoint_dir"));
}

}  // namespace

std::string LossDecidingConfig(const TrainConfig& config, const Worker& worker,
                               int64_t total_steps) {
  Json settings = config.flags.losses;
  settings["batch_size"] = config.data.batch_size;
  settings["accumulate"] = config.accumulate;
  settings.erase("microbatches");  // the pipelines' flag for accumulate
  settings[kDataParallelRanks] = worker.data_ranks();
  // The cosine depends on its last step; other schedules may be extended.
  settings[kCosineSteps] =
      config.optimizer.lr_schedule == "cosine" ? total_steps : 0;
  return settings.dump(-1, ' ', false,
                       Json::error_handler_t::replace);  // paths: any bytes
}

absl::StatusOr<int64_t> CheckConfig(const std::string& saved_text,
                                    const std::string& now_text,
                                    const TrainConfig& config,
                                    const Worker& worker) {
  const Json saved =
      Json::parse(saved_text, nullptr, /*allow_exceptions=*/false);
  if (!saved.is_object()) {
    return absl::DataLossError(
        "--resume: the checkpoint's configuration is not JSON; remove the "
        "checkpoint");
  }
  Json now = Json::parse(now_text);
  RETURN_IF_ERROR(CheckStepSize(saved, now, config, worker));
  const int64_t accumulate = NumberOf(ValueOr(saved, "accumulate", 1));
  for (const char* key : kStepSettings) now.erase(key);
  const Json defaults = config.flags.loss_defaults;
  for (const auto& [key, value] : now.items()) {
    const Json before = ValueOr(saved, key, ValueOr(defaults, key, "absent"));
    if (before == value) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "--resume: the checkpoint was made with ", AsTyped(key, before, worker),
        ", this run has ", AsTyped(key, value, worker),
        key == kCosineSteps ? " (--epochs, --max_steps)" : "",
        "; repeat the flags of the stopped run, or give another "
        "--checkpoint_dir"));
  }
  return accumulate;
}

}  // namespace rankwise
