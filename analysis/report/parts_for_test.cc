#include <cmath>
#include <random>
#include <utility>

#include "analysis/report/answer_for_test.h"

namespace rankwise {
namespace {

double StepSeconds(const Cell& cell) {
  return Median(cell.Values(&Throughput::step_seconds));
}

PipelineUse MakeUse(const std::string& schedule, double step_seconds) {
  PipelineUse use;
  use.schedule = schedule;
  use.pipeline_size = use.stages = 2;
  use.micro_batches = 4;
  use.schedule_seconds = 0.9 * step_seconds;
  use.wall_bubble = 0.27;
  use.span_bubble = 0.17;
  use.predicted_seconds = 0.82 * step_seconds;
  use.predicted_wall_bubble = 0.24;
  use.predicted_span_bubble = 0.14;
  return use;
}

LedgerParts MakeParts(const Cell& cell) {
  const double step = StepSeconds(cell);
  const bool pipeline = !cell.pipelines.empty();
  LedgerParts parts;
  parts.data_wait_seconds = 0.005 * step;
  parts.residual_seconds = 0.012 * step;
  if (pipeline) parts.bubble_seconds = 0.22 * step;
  if (cell.run.world_size > 1) {
    (pipeline ? parts.exposed_pp_seconds : parts.exposed_dp_seconds) =
        (pipeline ? 0.04 : 0.19) * step;
  }
  parts.compute_seconds = step - parts.Total();
  return parts;
}

CostPoint MakePoint(double bytes, double seconds) {
  return {bytes, seconds, {0.93 * seconds, 1.1 * seconds}};
}

CostCurve MakeCurve(const std::string& collective, int64_t ranks) {
  const double n = static_cast<double>(ranks);
  CostCurve curve;
  curve.world_size = ranks;
  if (collective == "all_reduce") curve.bus_factor = 2 * (n - 1) / n;
  // The algorithm changes at 64 KiB, which curve.line does not model.
  const double alpha = 90e-6 * n, near = 0.9e-9, far = 0.4e-9 + 0.1e-9 * n;
  const auto seconds = [&](double bytes) {
    return bytes < 65536 ? alpha + near * bytes
                         : alpha + 65536 * (near - far) + 4e-5 + far * bytes;
  };
  curve.line = {alpha, far, {0.9 * alpha, 1.1 * alpha}, {0.9 * far, 1.1 * far}};
  for (double bytes = 8; bytes <= 64 << 20; bytes *= 8) {
    curve.points.push_back(MakePoint(
        bytes, seconds(bytes) * (1 + 0.04 * std::sin(std::log(bytes) * n))));
  }
  curve.median_relative_error = 0.03;
  return curve;
}

// An action of a schedule; times are in units of a forward pass.
struct Slot {
  const char* action;
  int64_t micro_batch;
  double start, length;
};

// Actions by rank.
const std::vector<Slot> k1f1b[] = {{{"F", 0, 0, 1},
                                    {"F", 1, 1, 1},
                                    {"B", 0, 4, 2},
                                    {"F", 2, 6, 1},
                                    {"B", 1, 7, 2},
                                    {"F", 3, 9, 1},
                                    {"B", 2, 10, 2},
                                    {"B", 3, 13, 2}},
                                   {{"F", 0, 1, 1},
                                    {"B", 0, 2, 2},
                                    {"F", 1, 4, 1},
                                    {"B", 1, 5, 2},
                                    {"F", 2, 7, 1},
                                    {"B", 2, 8, 2},
                                    {"F", 3, 10, 1},
                                    {"B", 3, 11, 2}}};
const std::vector<Slot> kZeroBubble[] = {{{"F", 0, 0, 1},
                                          {"F", 1, 1, 1},
                                          {"I", 0, 3, 1},
                                          {"F", 2, 4, 1},
                                          {"I", 1, 5, 1},
                                          {"F", 3, 6, 1},
                                          {"I", 2, 7, 1},
                                          {"W", 0, 8, 1},
                                          {"I", 3, 9, 1},
                                          {"W", 1, 10, 1},
                                          {"W", 2, 11, 1},
                                          {"W", 3, 12, 1}},
                                         {{"F", 0, 1, 1},
                                          {"I", 0, 2, 1},
                                          {"F", 1, 3, 1},
                                          {"I", 1, 4, 1},
                                          {"F", 2, 5, 1},
                                          {"I", 2, 6, 1},
                                          {"F", 3, 7, 1},
                                          {"I", 3, 8, 1},
                                          {"W", 0, 9, 1},
                                          {"W", 1, 10, 1},
                                          {"W", 2, 11, 1},
                                          {"W", 3, 12, 1}}};

std::vector<TimelineRecord> MakeStep(const std::vector<Slot> (&ranks)[2],
                                     double forward_seconds,
                                     const std::string& origin) {
  std::vector<TimelineRecord> records;
  for (const std::vector<Slot>& slots : ranks) {
    TimelineRecord record;
    record.rank = static_cast<int64_t>(records.size());
    record.step = 42;
    record.origin = origin;
    for (const Slot& slot : slots) {
      record.spans.push_back({slot.action, record.rank, slot.micro_batch,
                              slot.start * forward_seconds,
                              (slot.start + slot.length) * forward_seconds});
    }
    records.push_back(record);
  }
  return records;
}

}  // namespace

Cell MakeCell(const std::string& trainer, int64_t ranks, double rank_batch,
              double examples_per_second) {
  const bool pipeline = trainer != "single" && trainer != "ddp";
  Cell cell;
  cell.run.binary = pipeline ? "pipeline" : trainer;
  if (pipeline) cell.run.flags["schedule"] = trainer;
  cell.run.flags["lr"] = "0.01";
  cell.run.world_size = ranks;
  cell.run.devices = cell.devices = {"cpu"};
  cell.run.versions.torch = "2.11.0";
  cell.run.versions.compiler = "g++ 12.2.0";
  cell.run.example = "image";
  cell.rank_batch = rank_batch;
  cell.global_batch = static_cast<int64_t>(rank_batch) * ranks;
  cell.peak_bytes = 310e6 + 2e6 * rank_batch;
  for (double factor : {0.98, 0.99, 1.0, 1.01, 1.02}) {
    Throughput one;
    one.steps = 50;
    one.examples_per_second = factor * examples_per_second;
    one.step_seconds =
        static_cast<double>(cell.global_batch) / one.examples_per_second;
    one.comm_wait_share = trainer == "ddp" && ranks > 1 ? 0.19 : 0;
    one.data_wait_share = 0.005;
    cell.repetitions.push_back(one);
    if (pipeline) cell.pipelines.push_back(MakeUse(trainer, one.step_seconds));
  }
  return cell;
}

Ledger MakeLedger(const Cell& cell) {
  Ledger ledger;
  ledger.critical = MakeParts(cell);
  ledger.imbalance_seconds = 0.03 * StepSeconds(cell);
  ledger.noise_seconds = 0.02 * StepSeconds(cell);
  ledger.median_residual_share = 0.012;
  for (int64_t rank = 0; rank < cell.run.world_size; ++rank) {
    RankLedger of_rank;
    of_rank.rank = rank;
    of_rank.parts = ledger.critical;
    const double less =
        0.02 * static_cast<double>(rank) * of_rank.parts.compute_seconds;
    of_rank.parts.compute_seconds -= less;
    (cell.pipelines.empty() ? of_rank.parts.exposed_dp_seconds
                            : of_rank.parts.bubble_seconds) += less;
    ledger.ranks.push_back(of_rank);
  }
  return ledger;
}

Waterfall MakeWaterfall(const Cell& cell, const Cell& base, Scaling scaling) {
  Waterfall waterfall;
  waterfall.cell = &cell;
  waterfall.base = &base;
  waterfall.scaling = scaling;
  waterfall.measured_seconds = StepSeconds(cell);
  waterfall.ideal_seconds =
      StepSeconds(base) * static_cast<double>(cell.global_batch) /
      static_cast<double>(base.global_batch * cell.run.world_size);
  waterfall.limit_seconds = 0.75 * waterfall.ideal_seconds;
  const double lost = waterfall.measured_seconds - waterfall.ideal_seconds;
  const std::vector<std::pair<LossCause, double>> shares = {
      {LossCause::kSmallerBatch, 0.17},
      {LossCause::kSharedMachine, 0.21},
      {LossCause::kCommSlowsCompute, 0.08},
      {LossCause::kExposedDp, 0.4},
      {LossCause::kNoise, 0.12},
      {LossCause::kDataWait, -0.02},
      {LossCause::kRest, 0.04}};
  for (const auto& [cause, share] : shares) {
    const double seconds = share * lost;
    waterfall.losses.push_back(
        {cause,
         seconds,
         seconds / waterfall.measured_seconds,
         {seconds - 0.05 * lost, seconds + 0.05 * lost}});
  }
  // Unknown, as for a cell with a single repetition.
  waterfall.losses.back().interval = {std::nan(""), std::nan("")};
  return waterfall;
}

NetworkModel MakeNetwork(const std::string& name, const std::string& backend) {
  NetworkModel network;
  network.name = name;
  network.backend = backend;
  std::vector<std::string> collectives = {"all_reduce"};
  if (backend == "gloo")
    collectives.insert(collectives.end(), {"all_gather", "broadcast"});
  for (const std::string& collective : collectives) {
    CollectiveCosts costs;
    costs.collective = collective;
    for (int64_t ranks : {2, 4, 8}) {
      costs.curves.push_back(MakeCurve(collective, ranks));
    }
    network.collectives.push_back(costs);
  }
  return network;
}

TimelinePicture MakeTimelines(const Cell& cell) {
  const auto& ranks =
      cell.run.flags.at("schedule") == "1f1b" ? k1f1b : kZeroBubble;
  TimelinePicture picture;
  picture.cell = &cell;
  picture.measured = MakeStep(ranks, 0.0031, "measured");
  picture.simulated = MakeStep(ranks, 0.0028, "simulated");
  return picture;
}

LayerProfile MakeProfile(const Cell& cell, const std::string& name) {
  LayerProfile profile;
  profile.cell = &cell;
  const auto add = [&](const std::string& layer, double flops, double bytes,
                       double seconds) {
    LayerRecord record;
    record.layer = std::ssize(profile.layers);
    record.name = layer + name;
    record.examples = 64;
    record.forward_flops = flops;
    record.backward_flops = 2 * flops;
    record.forward_bytes = bytes;
    record.backward_bytes = 3 * bytes;
    record.forward_seconds = {seconds, 1.2 * seconds, 0.9 * seconds};
    record.backward_seconds = {2 * seconds, 2.2 * seconds, 2.1 * seconds};
    profile.layers.push_back(record);
  };
  add("conv1", 0.2e9, 9e6, 0.4e-3);
  add("conv2", 0.6e9, 6e6, 0.7e-3);
  add("flatten", 0, 2e6, 0.02e-3);
  add("fc", 0.03e9, 5e6, 0.6e-3);
  return profile;
}

Prediction MakePrediction(int64_t ranks, double step_seconds) {
  Prediction prediction;
  prediction.layout.dp = ranks;
  prediction.layout.micro_batch = 64;
  prediction.step_seconds = step_seconds;
  prediction.step_interval = {0.94 * step_seconds, 1.06 * step_seconds};
  prediction.fitted_runs = 3;
  const double examples = 64 * static_cast<double>(ranks);
  prediction.examples_per_second = examples / step_seconds;
  prediction.unit.example = "image";
  prediction.examples_interval = {examples / (1.06 * step_seconds),
                                  examples / (0.94 * step_seconds)};
  prediction.exposed_comm_seconds = 0.3 * step_seconds;
  prediction.peak_bytes = 438e6;
  prediction.assumptions = {"all-reduces cost what a ring would"};
  return prediction;
}

LossCurve MakeLosses(const std::string& name, int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::normal_distribution<double> noise(0, 0.05);
  LossCurve curve;
  curve.name = name;
  for (int64_t step = 1; step <= 60; ++step) {
    curve.steps.push_back(step);
    curve.losses.push_back(
        0.4 + 1.9 * std::exp(-static_cast<double>(step) / 18) + noise(random));
  }
  return curve;
}

}  // namespace rankwise
