// What a trainer's flag changes, and which values and other flags it allows.
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

// The effect of a flag of this binary. Flags of parallel/launch that
// flag_rules.cc does not name change the speed.
FlagEffect EffectOf(const std::string& flag);

// `flag` and `other` are conditions on the command line: "trace": that flag has
// another value than its default; "outer=nesterov|elastic": one of these
// values; "cp>1": a value above. A rule about a flag that the
// binary lacks is ignored.
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
// `values`: the allowed ones, "adam|sgd"; a leading | also allows an empty
// value.
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

// InvalidArgument for the first of `rules` that the command line of `trainer`
// breaks, with the flag as the user typed it.
absl::Status CheckRules(absl::Span<const FlagRule> rules,
                        const std::string& trainer);

// The rules of all trainers (trainer_rules.cc).
absl::Span<const FlagRule> TrainerRules();

// The steps of the longest run: those of all epochs fit into 64 bits.
inline constexpr int64_t kMostSteps = 1'000'000'000'000;

// InvalidArgument with the text of `parts`.
template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// The refusal of a Needs rule, for conditions that no rule can express:
// "--momentum=0.9: needs --optimizer=sgd".
std::string NeedsText(const char* flag, const char* other, const char* why);

// The value of a flag that not every trainer has; `otherwise` in the others.
template <typename T>
T FlagOr(const char* name, T otherwise) {
  const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
  return flag == nullptr ? otherwise : *flag->TryGet<T>();
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_FLAG_RULES_H_
