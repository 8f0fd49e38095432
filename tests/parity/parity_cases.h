// Runs that must learn the same: tasks, the layouts of ranks that train them,
// and how far what came of two runs is apart. For hybrid_test, which trains a
// few steps, and for the command //tests/parity, which trains many.
#ifndef RANKWISE_TESTS_PARITY_PARITY_CASES_H_
#define RANKWISE_TESTS_PARITY_PARITY_CASES_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/trainer/trained.h"

namespace rankwise {

// All relative.
struct Bounds {
  double weights = 0;  // of each, to its norm
  double losses = 0;   // of each step, and of the evaluations
};

// A model and a recipe, such as GptAdam.
struct Task {
  std::string name;
  std::vector<std::string> flags = {};
  Bounds bounds = {};     // against one process
  int micro_batches = 0;  // of a step; 0: those of RunLength
  // Whether the bias of attention's keys counts. All of a row's scores change
  // by the same with it, which softmax takes out again: its gradient is zero
  // but for rounding, and Adam makes steps of full size of that.
  bool key_bias_counts = true;
};

struct Layout {
  std::string name;
  std::string trainer = "hybrid";
  int ranks = 1;
  int replicas = 1;  // ranks that train on different examples
  std::vector<std::string> flags = {};
};

// `layout` must learn what `base` learns.
struct ParityCase {
  Task task;
  Layout layout, base;
  Bounds bounds;
};

// "GptSgd_Tp2_Single".
std::string NameOf(const ParityCase& tested);
void PrintTo(const ParityCase& tested, std::ostream* out);

// How long to train. Steps have 16 examples, but for each epoch's last, which
// has 10.
struct RunLength {
  int steps = 6;  // in two epochs, with an evaluation after each
  int micro_batches = 2;
  absl::Duration patience = absl::Seconds(50);
};

// A case for each of `layouts`; names are those of parity_cases.cc's tables,
// another one ends the program. The first is bounded by its task.
std::vector<ParityCase> Against(const std::string& base,
                                const std::string& model,
                                const std::string& recipe,
                                const std::vector<std::string>& layouts);
std::vector<ParityCase> Against(const std::string& base,
                                const std::string& model,
                                const std::string& recipe,
                                const std::vector<std::string>& layouts,
                                const Bounds& bounds);

// Another order of additions of the same numbers, of fp32 and SGD.
inline constexpr Bounds kShardedBounds = {.weights = 1e-6, .losses = 1e-6};
inline constexpr Bounds kBitEqual = {};

// Trains, or takes what it trained before in this process. Fails the test if
// the run fails; then what it returns has no losses.
const Trained& RunOf(const Task& task, const Layout& layout,
                     const RunLength& length);

struct Distances {
  double weights = 0;  // the largest, as in Bounds; infinite for NaN,
  std::string weight;  // and whose it is
  double losses = 0;   // the largest; infinite where steps are missing
};

// Of two runs of `task` that both have losses; fails the test where their
// weights have other names.
Distances Compare(const Task& task, const Trained& base, const Trained& run);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_PARITY_PARITY_CASES_H_
