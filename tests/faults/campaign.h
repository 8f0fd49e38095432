// Training jobs with random faults: the jobs, the time of the fault, and the
// checks afterwards.
#ifndef RANKWISE_TESTS_FAULTS_CAMPAIGN_H_
#define RANKWISE_TESTS_FAULTS_CAMPAIGN_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "parallel/comm/test_process.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {

inline constexpr int kCampaignSteps = 24;
inline constexpr absl::Duration kCollectiveTimeout = absl::Seconds(5);
inline constexpr absl::Duration kRendezvousTimeout = absl::Seconds(20);
// Limit from one rank's end to that of all others, with slack for a loaded
// machine.
inline constexpr absl::Duration kGrace = absl::Seconds(8);
inline constexpr absl::Duration kPatience = absl::Minutes(2);  // for a job

struct CampaignTrainer {
  const char* name;
  int ranks;
  std::vector<std::string> flags;
};

enum Phase { kStartUp, kStep, kEvaluation, kCheckpoint, kPhases };

struct Moment {
  Phase phase;
  int after;  // number of the phase's lines, or checkpoints, to wait for
  absl::Duration delay;  // additional delay

  const char* Name() const;  // "a step"
};

const CampaignTrainer& DrawTrainer(std::mt19937_64& random);
Moment DrawMoment(std::mt19937_64& random);

// Returns all flags except those of the launcher.
std::vector<std::string> CampaignFlags(const CampaignTrainer& trainer,
                                       const std::string& dir);

// Blocks until the job, whose first rank prints to `out`, has reached the point
// of the fault; during start-up, only for the moment's delay.
absl::Status AwaitMoment(const Moment& moment, const TestProcess& out,
                         const std::string& dir);

// Returns the losses of rank 0, and the number of `restart` records.
absl::StatusOr<Losses> ReadLosses(const std::string& dir, int64_t* restarts);

// Checks that the folder contains only complete, expected files.
absl::Status CheckFiles(const std::string& dir);

// Returns the losses of an undisturbed job; each trainer's job is run once.
absl::StatusOr<const Losses*> UndisturbedLosses(const CampaignTrainer& trainer);

absl::Status Wrong(const std::string& what);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_FAULTS_CAMPAIGN_H_
