// Tests the traffic of a step along each axis of the mesh, byte by byte,
// against the literature: Shoeybi et al. 2019, "Megatron-LM", section 3, for
// tp; Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
// Transformer Models", section 4.2, for sequence parallelism; Liu et al. 2023,
// "Ring Attention", section 3, and Jacobs et al. 2023, "DeepSpeed Ulysses",
// section 3, for cp; Narayanan et al. 2021, "Efficient Large-Scale Language
// Model Training", section 3, for pp.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

// Dimensions of the model and its micro-batches; all numbers are fp32.
constexpr int64_t kExamples = 2, kTokens = 32, kFeatures = 64, kBlocks = 2,
                  kVocabulary = 256, kMicroBatches = 2, kBytes = 4;

struct Mesh {
  std::string name;
  int64_t pp = 1, dp = 1, cp = 1, tp = 1;
  bool sequence = false, ulysses = false;

  int64_t ranks() const { return pp * dp * cp * tp; }
  // Returns the recorded name of the group along an axis; "" for the group of
  // all ranks.
  std::string Group(const std::string& axis, int64_t size) const {
    return size == ranks() ? "" : axis;
  }
};

void PrintTo(const Mesh& mesh, std::ostream* out) { *out << mesh.name; }

// (group, operation) -> bytes that a rank passes to the call, or receives
using Traffic = std::map<std::pair<std::string, std::string>, int64_t>;

// A rank's part of the model: its blocks, the embedding, and the head.
struct Stage {
  int64_t blocks = kBlocks;
  bool first = true, last = true;
};

Stage StageOf(const Mesh& mesh, int64_t pp) {
  return {kBlocks / mesh.pp, pp == 0, pp == mesh.pp - 1};
}

// Returns the bytes of the tokens of one rank along cp.
int64_t Activations(const Mesh& mesh) {
  return kExamples * kTokens / mesh.cp * kFeatures * kBytes;
}

// A row-parallel layer sums its activations in forward, and a column-parallel
// one their gradients in backward: both sublayers of a block have one of each.
// The embedding is a row-parallel layer without an input gradient, and the head
// a column-parallel one. The loss exchanges the maximum of each token's logits,
// and two sums.
void AddTensorParallel(const Mesh& mesh, const Stage& stage, Traffic& traffic) {
  if (mesh.tp == 1) return;
  const std::string tp = mesh.Group("tp", mesh.tp);
  const int64_t whole = Activations(mesh), part = whole / mesh.tp;
  const int64_t loss = 3 * kExamples * kTokens / mesh.cp * kBytes;
  const int64_t sums = 4 * stage.blocks + stage.first + stage.last;
  int64_t& all_reduce = traffic[{tp, "all_reduce"}];
  if (stage.last) all_reduce += kMicroBatches * loss;
  if (!mesh.sequence) {
    all_reduce += kMicroBatches * sums * whole;
    return;
  }
  // Each sum becomes a reduce-scatter here and an all-gather on the other side
  // of the layer. Weight gradients gather their inputs again, which are not
  // kept, and the gradient of the positions is gathered. Norms and the
  // row-parallel layers' biases process a rank's own tokens: their gradients
  // are summed once per step.
  const int64_t positions = kTokens / mesh.cp * kFeatures * kBytes / mesh.tp;
  traffic[{tp, "reduce_scatter"}] = kMicroBatches * sums * whole;
  traffic[{tp, "all_gather"}] =
      kMicroBatches *
      ((6 * stage.blocks + stage.first + 2 * stage.last) * part +
       stage.first * positions);
  all_reduce += (6 * stage.blocks + 2 * stage.last) * kFeatures * kBytes;
}

// Ring: keys and values circulate to all ranks but their owner in forward and
// again in backward, and their gradients all the way. Ulysses: queries, keys
// and values are exchanged for other heads, and the results back; in backward,
// their gradients.
void AddContextParallel(const Mesh& mesh, const Stage& stage,
                        Traffic& traffic) {
  if (mesh.cp == 1) return;
  const std::string cp = mesh.Group("cp", mesh.cp);
  const int64_t own_heads = Activations(mesh) / mesh.tp;
  const int64_t blocks = kMicroBatches * stage.blocks;
  if (mesh.ulysses) {
    traffic[{cp, "all_to_all"}] = blocks * 2 * (3 + 1) * own_heads;
    return;
  }
  const int64_t hops = 2 * (mesh.cp - 1) + mesh.cp;
  traffic[{cp, "send"}] = blocks * hops * 2 * own_heads;
  traffic[{cp, "recv"}] = blocks * hops * 2 * own_heads;
}

// Returns the parameters of a rank: tp divides the matrices and the biases of
// column-parallel layers, 3 F + 4 F per block, but not those of row-parallel
// ones, F + F, nor the two norms.
int64_t ParametersOf(const Mesh& mesh, const Stage& stage) {
  const int64_t f = kFeatures, embedding = kVocabulary * f / mesh.tp;
  const int64_t block = (12 * f * f + 7 * f) / mesh.tp + 6 * f;
  const bool has_embedding = stage.first || stage.last;  // tied to the head
  return stage.blocks * block + has_embedding * embedding +
         stage.first * kTokens * f + stage.last * 2 * f;
}

// Gradients are averaged over all ranks with the same weights.
void AddGradients(const Mesh& mesh, const Stage& stage, Traffic& traffic) {
  if (mesh.dp * mesh.cp == 1) return;
  const std::string group = mesh.dp == 1   ? mesh.Group("cp", mesh.cp)
                            : mesh.cp == 1 ? mesh.Group("dp", mesh.dp)
                                           : "dp_cp";
  traffic[{group, "all_reduce"}] += ParametersOf(mesh, stage) * kBytes;
}

// Activations are sent to the next stage and their gradients back; the two
// stages with a part of the tied weight exchange its gradients, and the last
// stage sends the loss to the first.
void AddPipeline(const Mesh& mesh, const Stage& stage, Traffic& traffic) {
  if (mesh.pp == 1) return;
  const int64_t message = Activations(mesh) / (mesh.sequence ? mesh.tp : 1);
  const int64_t tied = kVocabulary * kFeatures * kBytes / mesh.tp;
  const int64_t both = kMicroBatches * message + tied;
  traffic[{"pp", "send"}] = both + (stage.last ? kBytes : 0);
  traffic[{"pp", "recv"}] = both + (stage.first ? kBytes : 0);
}

Traffic Expected(const Mesh& mesh, int64_t pp) {
  const Stage stage = StageOf(mesh, pp);
  Traffic traffic;
  AddTensorParallel(mesh, stage, traffic);
  AddContextParallel(mesh, stage, traffic);
  AddGradients(mesh, stage, traffic);
  AddPipeline(mesh, stage, traffic);
  std::erase_if(traffic, [](const auto& entry) { return entry.second == 0; });
  return traffic;
}

Traffic Measured(const TrafficRecord& record) {
  Traffic traffic;
  for (const RecordedTransfer& transfer : record.events)
    traffic[{transfer.group, transfer.op}] += transfer.bytes;
  return traffic;
}

std::vector<TrafficRecord> TrafficOf(const Mesh& mesh) {
  Flags flags = {"--model=gpt",
                 "--depth=2",
                 "--width=64",
                 "--sequence_length=32",
                 "--batch_size=2",
                 "--microbatches=2",
                 "--train_size=64",
                 "--epochs=1",
                 "--max_steps=3",
                 "--eval=false",
                 "--traffic_steps=1",
                 absl::StrCat("--pp=", mesh.pp),
                 absl::StrCat("--cp=", mesh.cp),
                 absl::StrCat("--tp=", mesh.tp)};
  if (mesh.pp == 2) flags.push_back("--split=2");
  if (mesh.sequence) flags.push_back("--sequence_parallel");
  if (mesh.ulysses) flags.push_back("--context=ulysses");
  const Trained run = Train("hybrid", static_cast<int>(mesh.ranks()), flags);
  return RecordsOf<TrafficRecord>(run.record);
}

class HybridTrafficTest : public ::testing::TestWithParam<Mesh> {};

TEST_P(HybridTrafficTest, IsTheFormulasToTheByte) {
  const Mesh& mesh = GetParam();
  const std::vector<TrafficRecord> records = TrafficOf(mesh);
  ASSERT_EQ(records.size(), static_cast<size_t>(mesh.ranks()));
  for (const TrafficRecord& record : records) {
    const int64_t pp = record.rank / (mesh.ranks() / mesh.pp);
    EXPECT_EQ(Measured(record), Expected(mesh, pp)) << "rank " << record.rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, HybridTrafficTest,
    ::testing::Values(
        Mesh{.name = "Tp2", .tp = 2}, Mesh{.name = "Dp2Tp2", .dp = 2, .tp = 2},
        Mesh{.name = "Dp2Sp2", .dp = 2, .tp = 2, .sequence = true},
        Mesh{.name = "Ring4", .cp = 4},
        Mesh{.name = "Dp2Ring2", .dp = 2, .cp = 2},
        Mesh{.name = "Sp2Ring2", .cp = 2, .tp = 2, .sequence = true},
        Mesh{.name = "Pp2Ulysses2", .pp = 2, .cp = 2, .ulysses = true},
        Mesh{.name = "Pp2Tp2", .pp = 2, .tp = 2},
        Mesh{.name = "Pp2Sp2", .pp = 2, .tp = 2, .sequence = true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rankwise
