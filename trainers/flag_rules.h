// What is known of a trainer's flag besides its type and default: what it
// changes, and which values and other flags it goes with. Rules are data: the
// trainers' are in trainer_rules.cc.
#ifndef RANKWISE_TRAINERS_FLAG_RULES_H_
#define RANKWISE_TRAINERS_FLAG_RULES_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

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
// flag_rules.cc change the speed.
FlagEffect EffectOf(const std::string& flag);

// `flag` and `other` are conditions on the command line: "trace": that flag has
// another value than its default; "outer=nesterov|elastic": one of these
// values; "cp>1": a value above. Rules about flags that a binary lacks hold.
struct FlagRule {
  enum class Kind { kInRange, kOneOf, kNeeds, kExcludes, kOnlyOf, kNotOf };
  Kind kind;
  const char* flag;
  const char* other = "";   // condition, values or trainers, with | between
  const char* why = "";     // ends the refusal
  const char* unless = "";  // a condition under which the rule does not apply
  double low = 0, high = 0;
};

constexpr FlagRule InRange(
    const char* flag, double low,
    double high = std::numeric_limits<double>::infinity()) {
  return {
      .kind = FlagRule::Kind::kInRange, .flag = flag, .low = low, .high = high};
}
// "adam|sgd"; "|adam|sgd": or empty.
constexpr FlagRule OneOf(const char* flag, const char* values) {
  return {.kind = FlagRule::Kind::kOneOf, .flag = flag, .other = values};
}
constexpr FlagRule Needs(const char* flag, const char* other,
                         const char* why = "", const char* unless = "") {
  return {FlagRule::Kind::kNeeds, flag, other, why, unless};
}
constexpr FlagRule Excludes(const char* flag, const char* other,
                            const char* why, const char* unless = "") {
  return {FlagRule::Kind::kExcludes, flag, other, why, unless};
}
// Only these trainers, or all but these, take the flag.
constexpr FlagRule OnlyOf(const char* flag, const char* trainers,
                          const char* why) {
  return {FlagRule::Kind::kOnlyOf, flag, trainers, why};
}
constexpr FlagRule NotOf(const char* flag, const char* trainers,
                         const char* why) {
  return {FlagRule::Kind::kNotOf, flag, trainers, why};
}

// InvalidArgument, with the flag as typed, by the first of `rules` that the
// command line of `trainer` breaks.
absl::Status CheckRules(absl::Span<const FlagRule> rules,
                        const std::string& trainer);

// All trainers' rules (trainer_rules.cc).
absl::Status CheckTrainerRules(const std::string& trainer);

// "--momentum=0.9: needs --optimizer=sgd", for what a rule cannot see.
std::string NeedsText(const char* flag, const char* other, const char* why);

// The value of a flag that not every trainer has; `otherwise` in the others.
template <typename T>
T FlagOr(const char* name, T otherwise) {
  const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
  return flag == nullptr ? otherwise : *flag->TryGet<T>();
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_FLAG_RULES_H_
