// Effects of the trainers' flags, and rules for their values and combinations.
// Rules are data; those of the trainers are in trainer_rules.cc.
#ifndef RANKWISE_TRAINERS_FLAG_RULES_H_
#define RANKWISE_TRAINERS_FLAG_RULES_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

// ABSL_FLAG for a flag of a trainer, with its FlagEffect.
#define TRAINER_FLAG(effect, type, name, default_value, help) \
  ABSL_FLAG(type, name, default_value, help);                 \
  [[maybe_unused]] static const bool registered_flag_##name = \
      ::rankwise::RegisterFlag(#name, ::rankwise::FlagEffect::effect)

namespace rankwise {

// A resumed run must repeat flags that change the losses (kLosses, kBatch);
// runs of one study share those independent of the world size (kLosses,
// kSpeed).
enum class FlagEffect {
  kLosses,
  kBatch,   // changes the losses, follows the world size
  kSpeed,   // changes the speed or the work between steps, no step's loss
  kLayout,  // follows the world size, changes no step's loss
  kOutput,  // destinations of output and references for comparison
};

bool RegisterFlag(const char* name, FlagEffect effect);

// Returns the effect of a flag of this binary. Flags of parallel/launch that
// flag_rules.cc does not list count as kSpeed.
FlagEffect EffectOf(const std::string& flag);

// `flag` and `other` are conditions on the command line: "trace": the flag
// differs from its default; "outer=nesterov|elastic": it has one of the values;
// "cp>1": it exceeds the value. A rule about a flag that the binary lacks never
// applies.
struct FlagRule {
  enum class Kind { kInRange, kOneOf, kNeeds, kExcludes, kOnlyOf, kNotOf };
  Kind kind;
  const char* flag;
  const char* other = "";   // condition, values or trainers, separated by |
  const char* why = "";     // reason, at the end of the refusal
  const char* unless = "";  // a condition under which the rule does not apply
  double low = 0, high = 0;
};

constexpr FlagRule InRange(
    const char* flag, double low,
    double high = std::numeric_limits<double>::infinity()) {
  return {
      .kind = FlagRule::Kind::kInRange, .flag = flag, .low = low, .high = high};
}
// `values`: the allowed ones, as in "adam|sgd"; a leading | also allows "".
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
// OnlyOf: only `trainers` accept the flag. NotOf: all others do.
constexpr FlagRule OnlyOf(const char* flag, const char* trainers,
                          const char* why) {
  return {FlagRule::Kind::kOnlyOf, flag, trainers, why};
}
constexpr FlagRule NotOf(const char* flag, const char* trainers,
                         const char* why) {
  return {FlagRule::Kind::kNotOf, flag, trainers, why};
}

// Returns InvalidArgument for the first rule that the command line of `trainer`
// breaks, with the flag as the user typed it.
absl::Status CheckRules(absl::Span<const FlagRule> rules,
                        const std::string& trainer);

// The rules of all trainers (trainer_rules.cc).
absl::Span<const FlagRule> TrainerRules();

// Upper bound on the steps of a run: the steps of all epochs fit into 64 bits.
inline constexpr int64_t kMostSteps = 1'000'000'000'000;

// Returns InvalidArgument with the concatenated `parts`.
template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Returns the refusal of a Needs rule, for conditions that no rule can express:
// "--momentum=0.9: needs --optimizer=sgd".
std::string NeedsText(const char* flag, const char* other, const char* why);

// Returns the value of a flag, or `otherwise` in trainers that lack it.
template <typename T>
T FlagOr(const char* name, T otherwise) {
  const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
  return flag == nullptr ? otherwise : *flag->TryGet<T>();
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_FLAG_RULES_H_
