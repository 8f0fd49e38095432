// Results of a training run: the losses of its steps and its final weights, for
// tests that compare two runs.
#ifndef RANKWISE_TESTS_TRAINER_TRAINED_H_
#define RANKWISE_TESTS_TRAINER_TRAINED_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "records/record.h"
#include "tests/trainer/trainer_process.h"
#include "torch/types.h"

namespace rankwise {

// By Python name.
using Weights = std::map<std::string, torch::Tensor>;

struct Trained {
  std::string dir;             // folder of the checkpoints and the weights
  std::string record;          // record file
  std::string out;             // standard output
  std::vector<Losses> losses;  // by rank
  Weights weights;
  std::vector<EvalRecord> evaluations;
};

// Returns an empty folder inside TEST_TMPDIR.
std::string FreshDir(const std::string& name);

// Returns the weights in a run's folder: model.safetensors, or all the files
// listed in model.safetensors.index.json. Fails the test if one cannot be read
// or has other tensors than listed.
Weights WeightsIn(const std::string& dir);

// Runs a trainer with `flags`, a folder for checkpoints and a record file, and
// reads the results. Fails the test if the run fails or exceeds `patience`.
// `ranks` is the number of ranks that write records; above 1, adds --nproc.
Trained Train(const std::string& trainer, int ranks, Flags flags,
              absl::Duration patience = absl::Seconds(50));

// Returns the largest distance between two weights, relative to the weight's
// norm; infinite for a NaN. Sets `weight`, if not nullptr, to the weight's
// name.
double LargestDistance(const Weights& a, const Weights& b,
                       std::string* weight = nullptr);

// Checks that every rank of `run` has the losses of rank 0 of `base`, and that
// weights and evaluations are equal, bit by bit.
void ExpectBitEqual(const Trained& base, const Trained& run);

// Like ExpectBitEqual, but within a relative `tolerance`.
void ExpectClose(const Trained& base, const Trained& run, double tolerance);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_TRAINER_TRAINED_H_
