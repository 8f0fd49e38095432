// Runs that must learn the same: tasks, layouts of ranks that train them, and
// the distance between the results of two runs. For hybrid_test, which trains a
// few steps, and for the command //tests/parity, which trains many.
#ifndef RANKWISE_TESTS_PARITY_PARITY_CASES_H_
#define RANKWISE_TESTS_PARITY_PARITY_CASES_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/trainer/trained.h"

namespace rankwise {

// Relative bounds.
struct Bounds {
  double weights = 0;  // per weight, relative to its norm
  double losses = 0;   // per step and evaluation
};

// A model and a recipe, such as GptAdam.
struct Task {
  std::string name;
  std::vector<std::string> flags = {};
  Bounds bounds = {};     // relative to one process
  int micro_batches = 0;  // per step; 0 for that of RunLength
  // Whether the bias of the attention's keys is compared. It shifts all scores
  // of a row equally, which softmax cancels: its gradient is zero up to
  // rounding, which Adam turns into full-size steps.
  bool key_bias_counts = true;
};

struct Layout {
  std::string name;
  std::string trainer = "hybrid";
  int ranks = 1;
  int replicas = 1;  // ranks that train on different examples
  std::vector<std::string> flags = {};
};

// `layout` must learn the same as `base`.
struct ParityCase {
  Task task;
  Layout layout, base;
  Bounds bounds;
};

// Returns "GptSgd_Tp2_Single".
std::string NameOf(const ParityCase& tested);
void PrintTo(const ParityCase& tested, std::ostream* out);

// Length of training. Steps have 16 examples, except for each epoch's last,
// which has 10.
struct RunLength {
  int steps = 6;  // in two epochs, each followed by an evaluation
  int micro_batches = 2;
  absl::Duration patience = absl::Seconds(50);
};

// Returns a case for each of `layouts`, with names from parity_cases.cc's
// tables; an unknown name ends the program. The first function uses the task's
// bounds.
std::vector<ParityCase> Against(const std::string& base,
                                const std::string& model,
                                const std::string& recipe,
                                const std::vector<std::string>& layouts);
std::vector<ParityCase> Against(const std::string& base,
                                const std::string& model,
                                const std::string& recipe,
                                const std::vector<std::string>& layouts,
                                const Bounds& bounds);

// Effect of another order of additions, with fp32 and SGD.
inline constexpr Bounds kShardedBounds = {.weights = 1e-6, .losses = 1e-6};
inline constexpr Bounds kBitEqual = {};

// Trains, or returns the result of an earlier equal run of this process. Fails
// the test if the run fails; the result then has no losses.
const Trained& RunOf(const Task& task, const Layout& layout,
                     const RunLength& length);

struct Distances {
  double weights = 0;  // largest, as in Bounds; infinite for NaN
  std::string weight;  // weight with the largest distance
  double losses = 0;   // largest; infinite if steps are missing
};

// Compares two runs of `task` that both have losses; fails the test if the
// names of their weights differ.
Distances Compare(const Task& task, const Trained& base, const Trained& run);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_PARITY_PARITY_CASES_H_
