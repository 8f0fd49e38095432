#include "tests/faults/campaign.h"

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"
#include "records/record_reader.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/load_all_for_test.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

constexpr int kStepsPerEpoch = 8;

const CampaignTrainer kTrainers[] = {
    {"ddp", 2, {"--batch_size=16"}},
    {"pipeline", 2, {"--batch_size=8", "--microbatches=4"}},
    {"fsdp", 2, {"--batch_size=16", "--zero=3"}},
    {"hybrid", 4, {"--batch_size=8", "--microbatches=4", "--pp=2", "--tp=2"}}};

constexpr const char* kPhaseNames[] = {"start-up", "a step", "an evaluation",
                                       "a checkpoint"};

int Below(std::mt19937_64& random, uint64_t n) {
  return static_cast<int>(random() % n);
}

bool Shows(const TestProcess& job, Phase phase, int count) {
  const char* const kLines[] = {"", "  step ", "mean training loss", ""};
  int found = 0;
  for (absl::string_view line : absl::StrSplit(job.Stdout(), '\n'))
    found += absl::StrContains(line, kLines[phase]) ? 1 : 0;
  return found >= count;
}

// Whether a file of the `count`th or a later checkpoint is being written.
bool Writes(const std::string& dir, int count) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(dir + "/checkpoints", none)) {
    const std::string name = entry.path().filename().string();
    const auto step = name.substr(0, name.find('.'));
    if (absl::StrContains(name, ".tmp") &&
        step >= absl::StrFormat("step_%08d", 3 * count)) {
      return true;
    }
  }
  return false;
}

}  // namespace

const char* Moment::Name() const { return kPhaseNames[phase]; }

const CampaignTrainer& DrawTrainer(std::mt19937_64& random) {
  return kTrainers[Below(random, std::size(kTrainers))];
}

Moment DrawMoment(std::mt19937_64& random) {
  Moment moment;
  moment.phase = static_cast<Phase>(Below(random, kPhases));
  moment.after =
      1 + Below(random, moment.phase == kStep ? kStepsPerEpoch + 4 : 2);
  moment.delay =
      absl::Milliseconds(Below(random, moment.phase == kStartUp ? 800 : 20));
  return moment;
}

std::vector<std::string> CampaignFlags(const CampaignTrainer& trainer,
                                       const std::string& dir) {
  std::vector<std::string> flags = {
      "--model=gpt",
      "--depth=2",
      "--width=128",
      "--sequence_length=32",
      absl::StrCat("--train_size=", 32 * kStepsPerEpoch),
      "--test_size=128",
      "--epochs=3",
      "--threads=1",
      "--log_every=1",
      "--checkpoint_every=3",
      absl::StrCat("--rendezvous_timeout=",
                   absl::FormatDuration(kRendezvousTimeout)),
      absl::StrCat("--collective_timeout=",
                   absl::FormatDuration(kCollectiveTimeout)),
      "--record=" + dir + "/run.jsonl",
      "--checkpoint_dir=" + dir + "/checkpoints"};
  flags.insert(flags.end(), trainer.flags.begin(), trainer.flags.end());
  return flags;
}

absl::Status Wrong(const std::string& what) {
  return absl::InternalError(what);
}

absl::StatusOr<Losses> ReadLosses(const std::string& dir, int64_t* restarts) {
  Losses losses;
  RETURN_IF_ERROR(
      VisitRecords(dir + "/run.jsonl", {.tolerate_torn_lines = true},
                   [&](const Record& record) {
                     const auto* step = std::get_if<StepRecord>(&record);
                     if (step != nullptr && step->rank == 0)
                       losses[step->step] = step->loss;
                     if (std::holds_alternative<RestartRecord>(record))
                       ++*restarts;
                     return absl::OkStatus();
                   })
          .status());
  return losses;
}

absl::Status CheckFiles(const std::string& dir) {
  for (const auto& entry : fs::directory_iterator(dir + "/checkpoints")) {
    const std::string name = entry.path().filename().string();
    if (absl::EndsWith(name, ".tmp")) return Wrong(name + " was left behind");
    if (absl::StartsWith(name, "model") &&
        absl::EndsWith(name, ".safetensors")) {
      RETURN_IF_ERROR(LoadSafetensors(entry.path().string()).status());
    }
  }
  CheckpointStore store(dir + "/checkpoints", 3);
  int64_t newest = kCampaignSteps;
  for (int i = 0; i < 3; ++i) {
    std::vector<std::string> warnings;
    ASSIGN_OR_RETURN(const auto loaded, LoadAll(store, &warnings, newest));
    if (!warnings.empty()) return Wrong(warnings[0]);
    if (!loaded.has_value()) return Wrong("a checkpoint is missing");
    if (i == 0 && loaded->step != kCampaignSteps)
      return Wrong("the last checkpoint is missing");
    newest = loaded->step - 1;
  }
  return absl::OkStatus();
}

absl::Status AwaitMoment(const Moment& moment, const TestProcess& out,
                         const std::string& dir) {
  const Deadline deadline(kPatience);
  while (moment.phase != kStartUp &&
         !(moment.phase == kCheckpoint
               ? Writes(dir, moment.after)
               : Shows(out, moment.phase, moment.after))) {
    if (deadline.passed())
      return Wrong("the job did not reach the point of the fault");
    absl::SleepFor(absl::Microseconds(200));
  }
  absl::SleepFor(moment.delay);
  return absl::OkStatus();
}

absl::StatusOr<const Losses*> UndisturbedLosses(
    const CampaignTrainer& trainer) {
  static auto& known = *new std::map<std::string, Losses>;
  const auto found = known.find(trainer.name);
  if (found != known.end()) return &found->second;
  const std::string dir = TemporaryPath("left_alone");
  fs::create_directories(dir);
  std::vector<std::string> flags = CampaignFlags(trainer, dir);
  flags.push_back(absl::StrCat("--nproc=", trainer.ranks));
  const Finished job = RunTrainer(trainer.name, flags, {}, kPatience);
  if (job.code != 0) return Wrong("the undisturbed job failed: " + job.err);
  int64_t restarts = 0;
  ASSIGN_OR_RETURN(const Losses losses, ReadLosses(dir, &restarts));
  if (losses.size() != kCampaignSteps || restarts != 0)
    return Wrong("the undisturbed job lacks steps or was restarted");
  fs::remove_all(dir);
  return &(known[trainer.name] = losses);
}

}  // namespace rankwise
