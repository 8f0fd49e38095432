// Kills and stops ranks of training jobs at random, and checks what is promised
// for such jobs: the error names the rank, all ranks end within a time limit,
// the job continues from its last checkpoint to the same losses as an
// undisturbed one, and no process and no partially written file is left.
//
//   bazel run //tests:kill_campaign -- --kills=100 --seed=1

#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "records/command_line.h"
#include "records/record_reader.h"
#include "tests/trainer_process.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/load_all_for_test.h"

ABSL_FLAG(int, kills, 100,
          "number of jobs; one rank of each is killed or stopped");
ABSL_FLAG(int, seed, 1, "random seed for which rank is hit, how and when");

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using Losses = std::map<int64_t, double>;  // by step, of rank 0

constexpr int kSteps = 24, kStepsPerEpoch = 8;
constexpr absl::Duration kCollectiveTimeout = absl::Seconds(5);
// From one rank's end to that of all others, with slack for a loaded machine.
constexpr absl::Duration kGrace = absl::Seconds(5), kSlack = absl::Seconds(3);
constexpr absl::Duration kPatience = absl::Minutes(2);  // for a whole job

struct Trainer {
  const char* name;
  int ranks;
  std::vector<std::string> flags;
};

const Trainer kTrainers[] = {
    {"ddp", 2, {"--batch_size=16"}},
    {"pipeline", 2, {"--batch_size=8", "--microbatches=4"}},
    {"fsdp", 2, {"--batch_size=16", "--zero=3"}},
    {"hybrid", 4, {"--batch_size=8", "--microbatches=4", "--pp=2", "--tp=2"}}};

enum Phase { kStartUp, kStep, kEvaluation, kCheckpoint, kPhases };
constexpr const char* kPhaseNames[] = {"start-up", "a step", "an evaluation",
                                       "a checkpoint"};

struct Fault {
  const Trainer* trainer;
  int signal;
  Phase phase;
  int rank;
  int after;             // lines, or checkpoints, of the phase to await
  absl::Duration delay;  // after that

  std::string Describe() const {
    return absl::StrFormat("%s, rank %d, %s in %s", trainer->name, rank,
                           signal == SIGKILL ? "SIGKILL" : "SIGSTOP",
                           kPhaseNames[phase]);
  }
};

Fault Draw(std::mt19937_64& random) {
  const auto below = [&random](uint64_t n) {
    return static_cast<int>(random() % n);
  };
  Fault fault;
  fault.trainer = &kTrainers[below(std::size(kTrainers))];
  fault.signal = below(3) == 0 ? SIGSTOP : SIGKILL;
  fault.phase = static_cast<Phase>(below(kPhases));
  fault.rank = below(fault.trainer->ranks);
  fault.after = 1 + below(fault.phase == kStep ? kStepsPerEpoch + 4 : 2);
  fault.delay = absl::Milliseconds(below(fault.phase == kStartUp ? 800 : 20));
  return fault;
}

std::vector<std::string> FlagsOf(const Trainer& trainer,
                                 const std::string& dir) {
  std::vector<std::string> flags = {
      absl::StrCat("--nproc=", trainer.ranks),
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
      "--max_restarts=1",
      "--rendezvous_timeout=20s",
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

// Every file in the folder belongs there and is complete.
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
  int64_t newest = kSteps;
  for (int i = 0; i < 3; ++i) {
    std::vector<std::string> warnings;
    ASSIGN_OR_RETURN(const auto loaded, LoadAll(store, &warnings, newest));
    if (!warnings.empty()) return Wrong(warnings[0]);
    if (!loaded.has_value()) return Wrong("a checkpoint is missing");
    if (i == 0 && loaded->step != kSteps)
      return Wrong("the last checkpoint is missing");
    newest = loaded->step - 1;
  }
  return absl::OkStatus();
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

// Blocks until the job has reached the point at which the fault is due.
absl::Status Await(const Fault& fault, const TestProcess& job,
                   const std::string& dir) {
  const Deadline deadline(kPatience);
  const auto ranks = static_cast<size_t>(fault.trainer->ranks);
  while (ChildrenOf(job.pid()).size() < ranks ||
         (fault.phase == kCheckpoint && !Writes(dir, fault.after)) ||
         ((fault.phase == kStep || fault.phase == kEvaluation) &&
          !Shows(job, fault.phase, fault.after))) {
    if (deadline.passed())
      return Wrong("the job did not reach the point of the fault");
    absl::SleepFor(absl::Microseconds(200));
  }
  absl::SleepFor(fault.delay);
  return absl::OkStatus();
}

absl::Status AwaitRestart(const TestProcess& job, absl::Duration bound) {
  const Deadline deadline(bound);
  while (!absl::StrContains(job.Stderr(), "restart 1 of 1")) {
    if (deadline.passed()) {
      return Wrong(absl::StrCat("the ranks did not end within ",
                                absl::FormatDuration(bound)));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

// The launcher's message names the rank.
absl::Status CheckNamed(const Fault& fault, const std::string& err) {
  const std::string rank = absl::StrCat("[launcher] rank ", fault.rank, " (");
  return absl::StrContains(err, rank)
             ? absl::OkStatus()
             : Wrong("the error does not name the rank");
}

class Campaign {
 public:
  // Prints a line; false if a check failed.
  bool Strike(int number, const Fault& fault) {
    const std::string dir = TemporaryPath("campaign");
    fs::create_directories(dir);
    const absl::StatusOr<const Losses*> expected = LeftAlone(*fault.trainer);
    std::unique_ptr<TestProcess> job =
        StartTrainer(fault.trainer->name, FlagsOf(*fault.trainer, dir));
    std::string ended;
    const absl::Status status =
        expected.ok() ? Check(fault, **expected, *job, dir, &ended)
                      : expected.status();
    std::printf(
        "%3d %s: %s\n", number, fault.Describe().c_str(),
        status.ok() ? ended.c_str() : std::string(status.message()).c_str());
    if (status.ok()) {
      fs::remove_all(dir);
    } else {
      std::printf("%s\n%s\nits files are in %s\n", job->Stdout().c_str(),
                  job->Stderr().c_str(), dir.c_str());
    }
    std::fflush(stdout);
    return status.ok();
  }

 private:
  absl::Status Check(const Fault& fault, const Losses& expected,
                     TestProcess& job, const std::string& dir,
                     std::string* ended) {
    RETURN_IF_ERROR(Await(fault, job, dir));
    std::vector<pid_t> ranks = ChildrenOf(job.pid());
    if (ranks.size() <= static_cast<size_t>(fault.rank))
      return Wrong("the job ended before the fault");
    const SteadyTime start = SteadyNow();
    kill(ranks[static_cast<size_t>(fault.rank)], fault.signal);
    const absl::Duration bound =
        kGrace + kSlack +
        (fault.signal == SIGSTOP ? kCollectiveTimeout : absl::ZeroDuration()) +
        // The other ranks wait until the rendezvous times out.
        (fault.signal == SIGSTOP && fault.phase == kStartUp ? absl::Seconds(20)
                                                            : absl::Seconds(0));
    RETURN_IF_ERROR(AwaitRestart(job, bound));
    const absl::Duration took = ElapsedSince(start);
    const int code = job.Wait(kPatience);
    if (code != 0)
      return Wrong(absl::StrCat("the job exited with code ", code));
    if (!AllGone(ranks)) return Wrong("a rank is still running");
    RETURN_IF_ERROR(CheckNamed(fault, job.Stderr()));
    RETURN_IF_ERROR(CheckFiles(dir));
    int64_t restarts = 0;
    ASSIGN_OR_RETURN(const Losses losses, ReadLosses(dir, &restarts));
    if (restarts != 1)
      return Wrong("the records do not contain exactly one restart");
    if (losses != expected)
      return Wrong("the losses differ from those of an undisturbed job");
    *ended = absl::StrFormat(
        "rank named, ranks ended in %.2f s, resumed, same losses",
        absl::ToDoubleSeconds(took));
    return absl::OkStatus();
  }

  // The losses of an undisturbed job.
  absl::StatusOr<const Losses*> LeftAlone(const Trainer& trainer) {
    const auto found = losses_.find(trainer.name);
    if (found != losses_.end()) return &found->second;
    const std::string dir = TemporaryPath("left_alone");
    fs::create_directories(dir);
    const Finished job = RunTrainer(trainer.name, FlagsOf(trainer, dir));
    if (job.code != 0) return Wrong("the undisturbed job failed: " + job.err);
    int64_t restarts = 0;
    ASSIGN_OR_RETURN(const Losses losses, ReadLosses(dir, &restarts));
    if (losses.size() != kSteps || restarts != 0)
      return Wrong("the undisturbed job lacks steps or was restarted");
    fs::remove_all(dir);
    return &(losses_[trainer.name] = losses);
  }

  std::map<std::string, Losses> losses_;
};

int Main(int argc, char** argv) {
  ParseFlags(argc, argv);
  const int kills = absl::GetFlag(FLAGS_kills);
  std::mt19937_64 random(static_cast<uint64_t>(absl::GetFlag(FLAGS_seed)));
  Campaign campaign;
  int broken = 0;
  for (int number = 1; number <= kills; ++number)
    broken += campaign.Strike(number, Draw(random)) ? 0 : 1;
  std::printf("%d of %d jobs passed all checks\n", kills - broken, kills);
  return broken == 0 ? 0 : kFailed;
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) { return rankwise::Main(argc, argv); }
