// What came of a training run: the losses of its steps and the weights that it
// left, for tests that compare two runs.
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
  std::string dir;             // of the checkpoints and the weights
  std::string record;          // the file
  std::string out;             // what it printed
  std::vector<Losses> losses;  // by rank
  Weights weights;
  std::vector<EvalRecord> evaluations;
};

// An empty folder inside TEST_TMPDIR.
std::string FreshDir(const std::string& name);

// The weights in a run's folder: model.safetensors, or all the files that
// model.safetensors.index.json names. Fails the test if one cannot be read or
// holds other tensors than the index says.
Weights WeightsIn(const std::string& dir);

// Runs a trainer with `flags`, a folder for checkpoints and a record file, and
// reads back what came of it. Fails the test if the run fails. `ranks` are the
// ranks that write records; above 1, --nproc is added. Fails after `patience`.
Trained Train(const std::string& trainer, int ranks, Flags flags,
              absl::Duration patience = absl::Seconds(50));

// The largest distance between two weights, relative to the weight's norm;
// infinite where one has a NaN. `weight`, if not null: whose it is.
double LargestDistance(const Weights& a, const Weights& b,
                       std::string* weight = nullptr);

// Every rank of `run` has the losses of rank 0 of `base`, and the weights and
// evaluations are the same, all to the last bit.
void ExpectBitEqual(const Trained& base, const Trained& run);

// Like ExpectBitEqual, but within a relative `tolerance`.
void ExpectClose(const Trained& base, const Trained& run, double tolerance);

}  // namespace rankwise

#endif  // RANKWISE_TESTS_TRAINER_TRAINED_H_
