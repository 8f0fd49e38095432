// Tests the planner's memory and commands against the trainers.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/plan/step.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using plan::Memory;

// Returns the megabytes of the ranks with the most memory, from a dry run's
// output.
Memory FullestOf(const std::string& out) {
  Memory fullest;
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    double parts[5];
    size_t read = 0;
    while (read < 5 && read < words.size() &&
           absl::SimpleAtod(words[read], &parts[read])) {
      ++read;
    }
    if (read < 5) continue;
    const Memory memory{parts[0], parts[1], parts[2], parts[3], parts[4]};
    if (memory.sum() > fullest.sum()) fullest = memory;
  }
  return fullest;
}

// Runs the command printed by the planner.
Memory DryRun(const plan::Model& model, const Layout& layout,
              const std::string& precision) {
  const std::string command = CommandOf(model, layout, precision);
  std::vector<std::string> words = absl::StrSplit(command, ' ');
  const std::string trainer = words[0].substr(words[0].find(':') + 1);
  words.erase(words.begin(), words.begin() + 2);
  words.push_back("--dry_run");
  const Finished run = RunTrainer(trainer, words);
  EXPECT_EQ(run.code, 0) << command << "\n" << run.err;
  return FullestOf(run.out);
}

struct Case {
  Layout layout;
  const char* precision = "fp32";
};

TEST(PlanMemory, IsWhatTheTrainersCompute) {
  const plan::Model model = *plan::NamedModel("nano");
  const Layout pipeline{.pp = 2, .micro_batch = 4, .micro_batches = 6};
  Layout mesh = pipeline;
  mesh.dp = mesh.tp = 2;
  mesh.sequence_parallel = true;
  Layout interleaved = pipeline;
  interleaved.schedule = "interleaved_1f1b";
  interleaved.chunks = 2;
  Layout zbv = pipeline;
  zbv.schedule = "zbv";
  zbv.chunks = 2;
  Layout split = pipeline;
  split.schedule = "zero_bubble_h1";
  Layout recompute = mesh;
  recompute.recompute = Recompute::kFull;
  Layout sharded = mesh;
  sharded.zero = 2;
  std::vector<Case> cases = {{{.micro_batch = 4}},
                             {{.dp = 2, .micro_batch = 4}, "bf16"},
                             {{.cp = 2, .tp = 2, .micro_batch = 4}},
                             {pipeline},
                             {interleaved},
                             {zbv, "bf16"},
                             {split},
                             {mesh, "bf16"},
                             {recompute},
                             {sharded, "bf16"}};
  for (int zero = 1; zero <= 3; ++zero) {
    cases.push_back({{.dp = 4, .zero = zero, .micro_batch = 4}});
    cases.push_back({{.dp = 4, .zero = zero, .micro_batch = 4}, "bf16"});
    cases.push_back(
        {{.dp = 4, .zero = zero, .micro_batch = 4, .micro_batches = 2}});
    cases.push_back(
        {{.dp = 4, .zero = zero, .micro_batch = 4, .micro_batches = 3},
         "bf16"});
    for (const char* precision : {"fp32", "bf16"}) {
      cases.push_back({{.pp = 2,
                        .dp = 2,
                        .zero = zero,
                        .micro_batch = 4,
                        .micro_batches = 4},
                       precision});
    }
    cases.push_back(
        {{.dp = 2, .tp = 2, .zero = zero, .micro_batch = 4, .micro_batches = 4},
         "bf16"});
    Layout chunks = interleaved;
    chunks.dp = 2;
    chunks.zero = zero;
    cases.push_back({chunks});
  }
  Layout sharded_zbv = zbv;
  sharded_zbv.dp = 2;
  sharded_zbv.zero = 2;
  cases.push_back({sharded_zbv, "bf16"});
  cases.push_back({{.dp = 2, .cp = 2, .zero = 2, .micro_batch = 4}});
  const plan::Cluster cluster = *plan::NamedCluster("a100-selene");
  for (const Case& one : cases) {
    const plan::Engine engine =
        *plan::OwnEngine(one.precision, /*on_cpu=*/true);
    auto steps = plan::StepModel::Create({model, engine, cluster});
    ASSERT_TRUE(steps.ok());
    const auto step = steps->Quick(one.layout);
    ASSERT_TRUE(step.ok()) << step.status();
    const Memory planned = step->memory;
    const Memory computed = DryRun(model, one.layout, one.precision);
    const std::string what =
        absl::StrCat(one.layout.FullName(), ", ", one.precision);
    const auto near = [&what](const char* part, double bytes,
                              double megabytes) {
      EXPECT_NEAR(1e-6 * bytes, megabytes, 0.01 * megabytes + 0.001)
          << part << " of " << what;
    };
    near("parameters", planned.parameters, computed.parameters);
    near("gradients", planned.gradients, computed.gradients);
    near("optimizer", planned.optimizer, computed.optimizer);
    near("unsharded", planned.unsharded, computed.unsharded);
    near("activations", planned.activations, computed.activations);
  }
}

}  // namespace
}  // namespace rankwise
