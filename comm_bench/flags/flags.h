// Flags of several binaries of this folder, by topic, in addition to
// parallel/launch/comm_flags. The linker includes a topic's file only in
// binaries that call its function.
//
// Each function sets the fields of `config` from its flags; complaints contain
// the flag's name, its value and the valid values. Combinations of flags are
// checked by the plans (sweep/plan.h).
#ifndef RANKWISE_COMM_BENCH_FLAGS_FLAGS_H_
#define RANKWISE_COMM_BENCH_FLAGS_FLAGS_H_

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/sweep/config.h"
#include "parallel/launch/comm_flags.h"

namespace rankwise::comm_bench {

void ReadSamples(BenchConfig& config, FlagChecks& checks);  // all binaries
void ReadCalls(BenchConfig& config, FlagChecks& checks);
void ReadSizes(BenchConfig& config, FlagChecks& checks);
void ReadMesh(BenchConfig& config, FlagChecks& checks);
void ReadGemmSize(BenchConfig& config, FlagChecks& checks);
void ReadSync(BenchConfig& config, FlagChecks& checks);
void ReadArrivals(BenchConfig& config, FlagChecks& checks);
void ReadRows(BenchConfig& config, FlagChecks& checks);
void ReadPrecision(BenchConfig& config, FlagChecks& checks);
void ReadTimer(BenchConfig& config, FlagChecks& checks);
// Late ranks and slow calls, simulated by --backend=fake only.
void ReadFake(BenchConfig& config, FlagChecks& checks);
void ReadVirtualTime(BenchConfig& config, FlagChecks& checks);

// Helpers that return a flag's value, or complain with the flag's name.

// Splits "a,b" into a and b.
std::vector<std::string> SplitNames(const std::string& list);

// Returns read(text), or `otherwise` after a complaint.
template <typename T>
T ReadText(const char* flag, const std::string& text,
           const std::function<absl::StatusOr<T>(const std::string&)>& read,
           T otherwise, FlagChecks& checks) {
  absl::StatusOr<T> value = read(text);
  if (value.ok()) return *std::move(value);
  checks.Complain(
      absl::StrCat("--", flag, "=", text, ": ", value.status().message()));
  return otherwise;
}

template <typename T>
using Choices = std::vector<std::pair<std::string, T>>;

// Sets `value` to the choice named by the text.
template <typename T>
void ReadChoice(const char* flag, const std::string& text,
                const Choices<std::type_identity_t<T>>& choices, T& value,
                FlagChecks& checks) {
  std::vector<std::string> names;
  for (const auto& [name, choice] : choices) {
    names.push_back(name);
    if (name == text) value = choice;
  }
  checks.OneOf(flag, text, names);
}

// Parses "0,5.5": microseconds, each multiplied by `unit`; "" is an empty list.
std::vector<double> ReadMicroseconds(const char* flag, const std::string& text,
                                     FlagChecks& checks, double unit = 1);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_FLAGS_FLAGS_H_
