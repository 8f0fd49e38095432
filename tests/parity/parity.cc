// Trains every task on every layout of ranks and compares the results with one
// process, or with a layout whose sums have the same order. Prints a table;
// exit code 1 if a distance exceeds its bound.
//   bazel run //tests/parity -- --steps=50 --only='Gpt.*_Zero'

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "records/command_line.h"
#include "tests/parity/parity_cases.h"

ABSL_FLAG(int, steps, 50, "optimizer steps of each run; even, 4 or more");
ABSL_FLAG(std::string, only, "",
          "regular expression for the names of the cases to run; a name, such "
          "as GptSgd_Tp2_Single, consists of task, layout and base");

namespace rankwise {
namespace {

using Names = std::vector<std::string>;

constexpr int kMicroBatches = 4;  // minimum for dualpipev on two ranks

class Campaign {
 public:
  // Throws std::regex_error.
  explicit Campaign(const std::string& only) : only_(only) {}

  void Add(const std::vector<ParityCase>& cases) {
    for (const ParityCase& each : cases) {
      if (std::regex_search(NameOf(each), only_)) cases_.push_back(each);
    }
  }
  const std::vector<ParityCase>& cases() const { return cases_; }

 private:
  const std::regex only_;
  std::vector<ParityCase> cases_;
};

const Names kSchedules = {
    "Pp2Tp2Naive",          "Pp2Tp2Gpipe",        "Pp2Tp21f1b",
    "Pp2Tp2Interleaved",    "Pp2Tp2ZeroBubbleH1", "Pp2Tp2ZeroBubbleH2",
    "Pp2Tp2ZeroBubbleAuto", "Pp2Tp2Zbv",          "Pp2Tp2DualPipeV"};

// Bounds relative to one process in bf16, from which fp32 differs as much.
constexpr Bounds kBf16Bounds = {.weights = 2e-2, .losses = 2e-3};

// Adds tensor, context and pipeline parallelism, compared with one process.
void AddDividedModels(Campaign& campaign) {
  for (const char* model :
       {"Gpt", "UntiedGpt", "Llama", "Qwen", "Vit", "Mlp"}) {
    const auto against_single = [&](const Names& layouts) {
      for (const char* recipe : {"Sgd", "Adam"})
        campaign.Add(Against("Single", model, recipe, layouts));
      campaign.Add(Against("Single", model, "Bf16", layouts, kBf16Bounds));
    };
    against_single({"Tp2", "Tp4", "Tp2Dp2", "Pp2Dp2Tp2"});
    against_single(kSchedules);
    if (std::string(model) == "Mlp") continue;  // no sequence
    against_single({"Sp2", "Ring2", "Pp2Ring2"});
    if (std::string(model) == "Qwen") continue;  // one key and value head
    against_single({"Ulysses2"});
  }
}

// The clipping norm is a sum over shards, which rounds in another order. Its
// last bit can decide which of several nearly equal values a ReLU or a max
// pooling selects, after which gradients differ: ddp differs as much from one
// process.
constexpr Bounds kFlippingBounds = {.weights = 1e-3, .losses = 1e-4};

// Adds sharded data parallelism, compared with replicas on the same examples,
// and its stages with each other.
void AddShardedModels(Campaign& campaign) {
  for (const char* model : {"Gpt", "Llama", "Vit", "Cnn", "Mlp"}) {
    const auto against = [&](const char* base, const char* recipe,
                             const Names& layouts, const Bounds& bounds) {
      campaign.Add(Against(base, model, recipe, layouts, bounds));
    };
    const Bounds clipped =
        std::string(model) == "Cnn" ? kFlippingBounds : kShardedBounds;
    against("Ddp2", "WholeSgd", {"Zero1", "Zero2", "Zero3"}, kShardedBounds);
    against(
        "Ddp2", "Sgd",
        {"Zero1", "Zero2", "Zero3", "Zero3Recompute", "Zero3EachMicrobatch"},
        clipped);
    against("Ddp4", "Sgd", {"Zero1Of4", "Zero2Of4", "Zero3Of4", "Hsdp"},
            clipped);
    if (std::string(model) != "Cnn")  // no layers to divide along tp
      against("Tp2Dp2", "Sgd", {"Tp2Zero3"}, kShardedBounds);
    against("Pp2Dp2", "Sgd", {"Pp2Zero1"}, clipped);
    against("Ddp2", "UnclippedBf16", {"Zero3Fp32Parameters"}, kBitEqual);
    against("Ddp2", "Bf16", {"Zero1"}, kBf16Bounds);
    for (const char* recipe : {"WholeSgd", "Sgd", "Bf16"})
      against("Zero1", recipe, {"Zero2", "Zero3"}, kBitEqual);
    against("Zero1Of4", "Sgd", {"Zero2Of4", "Zero3Of4"}, kBitEqual);
  }
}

// The largest distance of a task to a base, for the summary.
struct Farthest {
  int cases = 0, within = 0;
  Distances distances;
};

class Table {
 public:
  // Prints a row.
  void Add(const ParityCase& tested, const RunLength& length);
  // Prints a row per task and base; returns false if a bound was exceeded.
  bool Summarise() const;

 private:
  std::map<std::string, Farthest> farthest_;
};

void Table::Add(const ParityCase& tested, const RunLength& length) {
  const double start = SteadySeconds();
  const Trained& base = RunOf(tested.task, tested.base, length);
  const Trained& run = RunOf(tested.task, tested.layout, length);
  Farthest& farthest =
      farthest_[tested.task.name + " against " + tested.base.name];
  ++farthest.cases;
  if (base.losses.empty() || run.losses.empty()) {
    std::printf("%-44s failed\n", NameOf(tested).c_str());
    return;
  }
  const Distances distances = Compare(tested.task, base, run);
  const bool within = distances.weights <= tested.bounds.weights &&
                      distances.losses <= tested.bounds.losses;
  farthest.within += within;
  if (!(distances.weights <= farthest.distances.weights)) {
    farthest.distances.weights = distances.weights;
    farthest.distances.weight = distances.weight;
  }
  if (!(distances.losses <= farthest.distances.losses))
    farthest.distances.losses = distances.losses;
  std::printf("%-44s %9.1e %9.1e %9.1e %9.1e %5.1f  %-6s %s\n",
              NameOf(tested).c_str(), distances.weights, tested.bounds.weights,
              distances.losses, tested.bounds.losses, SteadySeconds() - start,
              within ? "ok" : "BEYOND", distances.weight.c_str());
  std::fflush(stdout);
}

bool Table::Summarise() const {
  bool all = true;
  std::printf("\n%-30s %6s %6s %9s %9s\n", "task", "cases", "ok", "weights",
              "losses");
  for (const auto& [name, farthest] : farthest_) {
    all = all && farthest.within == farthest.cases;
    std::printf("%-30s %6d %6d %9.1e %9.1e  %s\n", name.c_str(), farthest.cases,
                farthest.within, farthest.distances.weights,
                farthest.distances.losses, farthest.distances.weight.c_str());
  }
  return all;
}

int Run() try {
  const int steps = absl::GetFlag(FLAGS_steps);
  if (steps < 4 || steps % 2 != 0) {
    std::fprintf(stderr, "--steps=%d: must be even, and 4 or more\n", steps);
    return 2;
  }
  Campaign campaign(absl::GetFlag(FLAGS_only));
  AddDividedModels(campaign);
  AddShardedModels(campaign);
  if (campaign.cases().empty()) {
    std::fprintf(stderr, "--only=%s: no case has such a name\n",
                 absl::GetFlag(FLAGS_only).c_str());
    return 2;
  }
  std::printf(
      "%zu cases of %d steps; largest relative distances\n%-44s %9s "
      "%9s %9s %9s %5s\n",
      campaign.cases().size(), steps, "task_layout_base", "weights", "bound",
      "losses", "bound", "s");
  Table table;
  for (const ParityCase& each : campaign.cases()) {
    table.Add(each,
              {steps, kMicroBatches, /*patience=*/absl::Seconds(5 * steps)});
    // The results of the runs have been read.
    for (const auto& entry :
         std::filesystem::directory_iterator(std::getenv("TEST_TMPDIR")))
      std::filesystem::remove_all(entry);
  }
  return table.Summarise() ? 0 : 1;
} catch (const std::regex_error& error) {
  std::fprintf(stderr, "--only=%s: not a regular expression: %s\n",
               absl::GetFlag(FLAGS_only).c_str(), error.what());
  return 2;
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Whether all layouts of ranks learn the same: bazel run //tests/parity "
      "-- --steps=50 [--only=REGEX]");
  rankwise::ParseFlags(argc, argv);
  char folder[] = "/tmp/parity_XXXXXX";
  if (mkdtemp(folder) == nullptr) {
    std::perror(folder);
    return 1;
  }
  setenv("TEST_TMPDIR", folder, /*overwrite=*/1);
  const int code = rankwise::Run();
  std::filesystem::remove_all(folder);
  return code != 0 || !::testing::UnitTest::GetInstance()->Failed() ? code : 1;
}
