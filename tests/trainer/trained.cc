#include "tests/trainer/trained.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

Weights LoadWeights(const std::string& path) {
  const auto contents = LoadSafetensors(path);
  EXPECT_TRUE(contents.ok()) << contents.status();
  if (!contents.ok()) return {};
  return {contents->tensors.begin(), contents->tensors.end()};
}

double Norm(const torch::Tensor& tensor) {
  return at::linalg_vector_norm(tensor.to(at::kDouble)).item<double>();
}

void ExpectSameNames(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& entry : a) ASSERT_TRUE(b.count(entry.first)) << entry.first;
}

}  // namespace

std::string FreshDir(const std::string& name) {
  const std::string dir = TemporaryPath(name);
  std::filesystem::create_directories(dir);
  return dir;
}

Weights WeightsIn(const std::string& dir) {
  const std::string index_path = dir + "/model.safetensors.index.json";
  if (!std::filesystem::exists(index_path))
    return LoadWeights(dir + "/model.safetensors");
  std::ifstream file(index_path);
  const auto index = nlohmann::json::parse(file, nullptr, false);
  EXPECT_TRUE(index.is_object()) << index_path;
  if (!index.is_object()) return {};
  const auto files =
      index["weight_map"].get<std::map<std::string, std::string>>();
  std::set<std::string> names;
  for (const auto& [tensor, name] : files) names.insert(name);
  Weights weights;
  for (const std::string& name : names) {
    for (const auto& [tensor, value] : LoadWeights(dir + "/" + name)) {
      EXPECT_EQ(files.count(tensor) == 0 ? "" : files.at(tensor), name)
          << tensor;
      weights[tensor] = value;
    }
  }
  EXPECT_EQ(weights.size(), files.size());
  return weights;
}

Trained Train(const std::string& trainer, int ranks, Flags flags,
              absl::Duration patience) {
  Trained trained;
  trained.dir = FreshDir(trainer);
  trained.record = trained.dir + "/run.jsonl";
  flags.insert(flags.end(), {"--record=" + trained.record,
                             "--checkpoint_dir=" + trained.dir, "--threads=1"});
  if (ranks > 1) flags.push_back(absl::StrCat("--nproc=", ranks));
  const Finished run = RunTrainer(trainer, flags, {}, patience);
  EXPECT_EQ(run.code, 0) << run.err;
  if (run.code != 0) return trained;
  trained.out = run.out;
  for (int rank = 0; rank < ranks; ++rank)
    trained.losses.push_back(LossesOf(trained.record, rank));
  trained.weights = WeightsIn(trained.dir);
  trained.evaluations = RecordsOf<EvalRecord>(trained.record);
  return trained;
}

double LargestDistance(const Weights& a, const Weights& b,
                       std::string* weight) {
  ExpectSameNames(a, b);
  double largest = 0;
  for (const auto& [name, value] : a) {
    if (b.count(name) == 0) continue;
    double distance = Norm(value - b.at(name));
    if (distance > 0) distance /= Norm(value);
    if (std::isnan(distance))
      distance = std::numeric_limits<double>::infinity();
    if (distance <= largest) continue;
    largest = distance;
    if (weight != nullptr) *weight = name;
  }
  return largest;
}

void ExpectBitEqual(const Trained& base, const Trained& run) {
  ASSERT_FALSE(base.losses.empty());
  ASSERT_FALSE(base.losses[0].empty());
  ASSERT_FALSE(run.losses.empty());
  for (size_t rank = 0; rank < run.losses.size(); ++rank)
    EXPECT_EQ(run.losses[rank], base.losses[0]) << "rank " << rank;
  ExpectSameNames(base.weights, run.weights);
  for (const auto& [name, weight] : base.weights) {
    ASSERT_TRUE(run.weights.count(name)) << name;
    EXPECT_TRUE(at::equal(weight, run.weights.at(name))) << name;
  }
  ASSERT_EQ(run.evaluations.size(), base.evaluations.size());
  for (size_t i = 0; i < base.evaluations.size(); ++i) {
    EXPECT_EQ(run.evaluations[i].mean_loss, base.evaluations[i].mean_loss);
    EXPECT_EQ(run.evaluations[i].correct, base.evaluations[i].correct);
    EXPECT_EQ(run.evaluations[i].total, base.evaluations[i].total);
  }
}

void ExpectClose(const Trained& base, const Trained& run, double tolerance) {
  ASSERT_FALSE(base.losses.empty());
  ASSERT_FALSE(run.losses.empty());
  for (size_t rank = 0; rank < run.losses.size(); ++rank) {
    ASSERT_EQ(run.losses[rank].size(), base.losses[0].size());
    for (const auto& [step, loss] : base.losses[0]) {
      EXPECT_NEAR(run.losses[rank].at(step), loss, tolerance * loss)
          << "rank " << rank << ", step " << step;
    }
  }
  EXPECT_LE(LargestDistance(base.weights, run.weights), tolerance);
  ASSERT_EQ(run.evaluations.size(), base.evaluations.size());
  for (size_t i = 0; i < base.evaluations.size(); ++i) {
    const EvalRecord& expected = base.evaluations[i];
    EXPECT_NEAR(run.evaluations[i].mean_loss, expected.mean_loss,
                tolerance * expected.mean_loss);
    EXPECT_EQ(run.evaluations[i].total, expected.total);
  }
}

}  // namespace rankwise
