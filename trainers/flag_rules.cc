#include "trainers/flag_rules.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "records/command_line.h"

namespace rankwise {
namespace {

using Flag = absl::CommandLineFlag;

std::map<std::string, FlagEffect>& Effects() {
  static auto* const effects =
      new std::map<std::string, FlagEffect>{{"nproc", FlagEffect::kLayout},
                                            {"file_store", FlagEffect::kOutput},
                                            {"log_dir", FlagEffect::kOutput}};
  return *effects;
}

std::vector<std::string> Split(const std::string& text) {
  return absl::StrSplit(text, '|');
}

double Number(const Flag& flag) {
  double number = std::nan("");
  return absl::SimpleAtod(flag.CurrentValue(), &number) ? number : std::nan("");
}

// A condition of FlagRule, parsed.
struct Condition {
  explicit Condition(const std::string& text) {
    const size_t end = text.find_first_of("=>");
    name = text.substr(0, end);
    flag = absl::FindCommandLineFlag(name);
    if (end == std::string::npos) return;
    relation = text[end];
    value = text.substr(end + 1);
  }

  bool holds() const {
    if (flag == nullptr) return false;
    if (relation == '=')
      return absl::c_linear_search(Split(value), flag->CurrentValue());
    if (relation == '>') return Number(*flag) > std::atof(value.c_str());
    return DiffersFromDefault(*flag);
  }

  // Returns the condition as a user would type it.
  std::string text() const {
    if (relation == '>') return absl::StrCat("--", name, " above ", value);
    if (relation == '=')
      return absl::StrCat("--", name, "=", absl::StrJoin(Split(value), " or "));
    return absl::StrCat("--", name);
  }

  // Returns the flag as the user typed it.
  std::string typed() const {
    const std::string current = flag->CurrentValue();
    const bool is_switch = flag->IsOfType<bool>() && current == "true";
    return is_switch ? absl::StrCat("--", name)
                     : absl::StrCat("--", name, "=", current);
  }

  std::string name;
  const Flag* flag = nullptr;  // nullptr if this binary lacks the flag
  char relation = 0;           // '=', '>', or 0 without a relation
  std::string value;
};

// Formats integers without an exponent, other numbers as StrCat does.
std::string NumberText(double number) {
  return number == std::floor(number) && std::abs(number) < 1e15
             ? absl::StrCat(static_cast<int64_t>(number))
             : absl::StrCat(number);
}

std::string BrokenRange(const FlagRule& rule, const Condition& flag) {
  const double value = Number(*flag.flag);
  if (value >= rule.low && value <= rule.high && std::isfinite(value))
    return "";
  const std::string allowed =
      std::isinf(rule.high) ? absl::StrCat("at least ", NumberText(rule.low))
                            : absl::StrCat("between ", NumberText(rule.low),
                                           " and ", NumberText(rule.high));
  return absl::StrCat(flag.typed(), ": must be ",
                      std::isfinite(value) ? "" : "finite and ", allowed);
}

std::string BrokenChoice(const FlagRule& rule, const Condition& flag) {
  std::vector<std::string> values = Split(rule.other);
  if (absl::c_linear_search(values, flag.flag->CurrentValue())) return "";
  const bool may_be_empty = std::erase(values, "") > 0;
  return absl::StrCat(flag.typed(), ": must be one of ",
                      absl::StrJoin(values, ", "),
                      may_be_empty ? ", or left empty" : "");
}

std::string BrokenBetweenFlags(const FlagRule& rule, const Condition& flag) {
  const Condition other(rule.other);
  if (other.flag == nullptr) return "";
  if (rule.kind == FlagRule::Kind::kNeeds) {
    return other.holds() ? "" : NeedsText(rule.flag, rule.other, rule.why);
  }
  if (!other.holds()) return "";
  return absl::StrCat(flag.typed(), ": excludes ", other.typed(), ": ",
                      rule.why, "; leave out one of the two");
}

std::string BrokenByTrainer(const FlagRule& rule, const Condition& flag,
                            const std::string& trainer) {
  const std::vector<std::string> named = Split(rule.other);
  const bool only = rule.kind == FlagRule::Kind::kOnlyOf;
  if (absl::c_linear_search(named, trainer) == only) return "";
  return absl::StrCat(flag.typed(), ": ", trainer, " does not take it",
                      only ? absl::StrCat(", only ", absl::StrJoin(named, ", "),
                                          named.size() == 1 ? " does" : " do")
                           : "",
                      ": ", rule.why);
}

// Returns the refusal, or "" if the rule holds.
std::string Broken(const FlagRule& rule, const std::string& trainer) {
  const Condition flag(rule.flag);
  if (flag.flag == nullptr) return "";
  if (rule.kind == FlagRule::Kind::kInRange) return BrokenRange(rule, flag);
  if (rule.kind == FlagRule::Kind::kOneOf) return BrokenChoice(rule, flag);
  if (!flag.holds() || Condition(rule.unless).holds()) return "";
  const bool between_flags = rule.kind == FlagRule::Kind::kNeeds ||
                             rule.kind == FlagRule::Kind::kExcludes;
  return between_flags ? BrokenBetweenFlags(rule, flag)
                       : BrokenByTrainer(rule, flag, trainer);
}

}  // namespace

bool RegisterFlag(const char* name, FlagEffect effect) {
  return Effects().emplace(name, effect).second;
}

FlagEffect EffectOf(const std::string& flag) {
  const auto found = Effects().find(flag);
  return found == Effects().end() ? FlagEffect::kSpeed : found->second;
}

absl::Status CheckRules(absl::Span<const FlagRule> rules,
                        const std::string& trainer) {
  for (const FlagRule& rule : rules) {
    const std::string broken = Broken(rule, trainer);
    if (!broken.empty()) return absl::InvalidArgumentError(broken);
  }
  return absl::OkStatus();
}

std::string NeedsText(const char* flag, const char* other, const char* why) {
  return absl::StrCat(Condition(flag).typed(), ": needs ",
                      Condition(other).text(), *why == 0 ? "" : ", ", why);
}

}  // namespace rankwise
