// The command line that all trainers share, in addition to
// parallel/launch/comm_flags, and what each flag of a trainer counts for. Part
// of the binaries: the libraries below see only the structs.
#ifndef RANKWISE_TRAINERS_FLAGS_H_
#define RANKWISE_TRAINERS_FLAGS_H_

#include <limits>
#include <string>
#include <type_traits>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "parallel/launch/comm_flags.h"
#include "trainers/loop/config.h"

// ABSL_FLAG for a flag of a trainer, with what it changes (a FlagEffect).
#define TRAINER_FLAG(effect, type, name, default_value, help) \
  ABSL_FLAG(type, name, default_value, help);                 \
  [[maybe_unused]] static const bool registered_flag_##name = \
      ::rankwise::RegisterFlag(#name, ::rankwise::FlagEffect::effect)

namespace rankwise {

// A resumed run must repeat what changes the losses (kLosses, kBatch); runs of
// one study must share what does not follow the world size (kLosses, kSpeed).
enum class FlagEffect {
  kLosses,
  kBatch,   // the losses, but it follows the world size
  kSpeed,   // or what a run does between its steps; no step's loss
  kLayout,  // follows the world size; no step's loss
  kOutput,  // what is written where, or what it is compared with
};

bool RegisterFlag(const char* name, FlagEffect effect);

// Of a flag of this binary; flags of parallel/launch that are not named in
// flags.cc change the speed.
FlagEffect EffectOf(const std::string& flag);

// The value of `flag`; `checks` complains unless it is in [low, high].
template <typename T>
T FlagInRange(FlagChecks& checks, const absl::Flag<T>& flag,
              std::type_identity_t<T> low,
              std::type_identity_t<T> high = std::numeric_limits<T>::max()) {
  const T value = absl::GetFlag(flag);
  const std::string name(absl::GetFlagReflectionHandle(flag).Name());
  checks.InRange<T>(name.c_str(), value, low, high);
  return value;
}

// The ranks of the job: those that --backend=fake pretends, those of the
// launcher that this process is in, or else --nproc. InvalidArgument as
// ReadRankEnv().
absl::StatusOr<int> WorldSizeFromFlags();

// InvalidArgument names the flag, its value and what is allowed. Settles what
// the model decides where a flag is silent.
absl::StatusOr<TrainConfig> TrainConfigFromFlags();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_FLAGS_H_
