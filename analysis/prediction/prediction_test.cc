#include "analysis/prediction/prediction.h"

#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "analysis/prediction/recordings.h"
#include "analysis/prediction/runs_for_test.h"
#include "analysis/runs/made_study_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RecordedPredictor Make(const std::vector<RunTrace>& runs,
                       const NetworkModel& network) {
  auto predictor = RecordedPredictor::Create(runs, network, {});
  EXPECT_TRUE(predictor.ok()) << predictor.status();
  return *std::move(predictor);
}

// 34 ms; 4 MB and 2 MB buckets, ready 10 and 20 ms into backward.
DdpRunForTest Ranks(int64_t world_size, int64_t batch = 64) {
  DdpRunForTest config{.world_size = world_size, .batch = batch};
  config.run_id = "ddp-x" + std::to_string(world_size);
  return config;
}

Layout Ddp(int64_t dp, int64_t batch = 64) {
  return {.dp = dp, .micro_batch = batch};
}

TEST(Layout, SaysWhatItIs) {
  EXPECT_EQ(Ddp(8).Name(), "ddp x8");
  Layout buckets = Ddp(8);
  buckets.bucket_bytes = 4e6;
  EXPECT_EQ(buckets.Name(), "ddp x8, buckets of 4 MB");
  const Layout hybrid = {.pp = 4,
                         .dp = 2,
                         .schedule = "1f1b",
                         .micro_batch = 8,
                         .micro_batches = 8};
  EXPECT_EQ(hybrid.Name(), "1f1b pp 4 x dp 2, 8 micro-batches");
  Layout chunks = hybrid;
  chunks.schedule = "interleaved_1f1b";
  chunks.chunks = 4;
  EXPECT_EQ(chunks.Name(), "interleaved_1f1b x4 pp 4 x dp 2, 8 micro-batches");
}

TEST(Predictor, PredictsWhatTheStepsWouldTake) {
  const std::vector<RunTrace> runs = {MakeDdpRun(Ranks(2))};
  RecordedPredictor predictor = Make(runs, FlatNetwork(0, 1e-9));
  const auto prediction = predictor.Predict(Ddp(8));
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_NEAR(prediction->step_seconds, 0.036, 1e-6);
  EXPECT_NEAR(prediction->exposed_comm_seconds, 0.002, 1e-6);
  EXPECT_EQ(prediction->bubble_seconds, 0);
  EXPECT_NEAR(prediction->examples_per_second, 8 * 64 / 0.036, 1);
  EXPECT_FALSE(prediction->extrapolations.empty());
  EXPECT_THAT(prediction->assumptions,
              Contains(HasSubstr("the slowest of 8 sets the pace")));
  EXPECT_THAT(prediction->assumptions, Contains(HasSubstr("one run")));
  EXPECT_TRUE(predictor.Predict(Ddp(2))->extrapolations.empty());
}

TEST(Predictor, TheSlowestOfManyRanksSetsThePace) {
  DdpRunForTest config = Ranks(2);
  // One step in five is 5 ms longer: 36 % of the steps of 2 ranks, 83 % of 8.
  config.jitter_seconds = {0, 0, 0, 0, 0.005};
  const std::vector<RunTrace> runs = {MakeDdpRun(config)};
  RecordedPredictor predictor = Make(runs, FlatNetwork(0, 0));
  EXPECT_NEAR(predictor.Predict(Ddp(2))->step_seconds, 0.034, 1e-6);
  EXPECT_NEAR(predictor.Predict(Ddp(8))->step_seconds, 0.039, 1e-6);
}

TEST(Predictor, PredictsWhatIsMeasuredOfRanksThatAreLateInTurn) {
  const std::string dir = testing::TempDir() + "/late_ranks";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directory(dir);
  constexpr int64_t kRanks = 16;
  ASSERT_TRUE(WriteLateStudy(dir, {.ranks = kRanks, .lateness = 0.03}).ok());
  const auto runs = LoadRuns(dir);
  ASSERT_TRUE(runs.ok()) << runs.status();
  const double step_seconds = kMadeSingleStepSeconds / 0.8;
  RecordedPredictor predictor =
      Make(*runs, FlatNetwork(kLateStudyAllReduceShare * step_seconds, 0));
  const auto prediction = predictor.Predict(Ddp(kRanks));
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_NEAR(prediction->step_seconds / step_seconds, 1, 0.01);

  std::vector<std::string> left_out;
  int measured = 0;
  for (const Cell& cell : GroupIntoCells(*runs, {}, &left_out)) {
    if (cell.run.world_size != kRanks) continue;
    ++measured;
    const double median = Median(cell.Values(&Throughput::step_seconds));
    EXPECT_NEAR(prediction->step_seconds / median, 1, 0.01);
  }
  EXPECT_EQ(measured, 1);
}

TEST(Predictor, SaysHowTheNetworkGrows) {
  NetworkModel network = FlatNetwork(0, 1e-9);
  network.collectives[0].collective = "all_reduce";
  network.collectives[0].growth = Growth::kRing;
  network.collectives[0].growth_is_assumed = true;
  network.collectives[0].curves[0].world_size = 2;
  const std::vector<RunTrace> runs = {MakeDdpRun(Ranks(2))};
  RecordedPredictor predictor = Make(runs, network);
  EXPECT_THAT(predictor.Predict(Ddp(8))->extrapolations,
              Contains(HasSubstr("grown as in a ring (assumed")));
  EXPECT_THAT(predictor.Predict(Ddp(2))->extrapolations, IsEmpty());
}

TEST(Predictor, SaysWhichBucketsAreBeyondTheMeasuredSizes) {
  NetworkModel network = FlatNetwork(0, 1e-9);
  network.collectives[0].collective = "all_reduce";
  network.collectives[0].curves[0].world_size = 2;
  network.collectives[0].curves[0].points = {{4, 4e-9, {4e-9, 4e-9}},
                                             {1024, 1e-6, {1e-6, 1e-6}}};
  const std::vector<RunTrace> runs = {MakeDdpRun(Ranks(2))};
  const auto prediction = Make(runs, network).Predict(Ddp(2));
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_THAT(prediction->extrapolations,
              ElementsAre("no all_reduce above 1 KiB was measured on 2 ranks: "
                          "its cost follows the line through the measured "
                          "sizes"));
  EXPECT_THAT(PredictionTable({*prediction}, 0),
              AllOf(HasSubstr("ddp x2 *"), HasSubstr("beyond what was"),
                    HasSubstr("ddp x2: no all_reduce above 1 KiB")));
}

TEST(Predictor, RefusesWhereNothingWasRecorded) {
  const auto none = RecordedPredictor::Create({}, FlatNetwork(0, 0), {});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("//trainers:ddp -- --nproc=2 --traffic_steps=10"));
  const std::vector<RunTrace> bare = {MakeDdpRun({.traffic_steps = 0})};
  EXPECT_THAT(std::string(RecordedPredictor::Create(bare, FlatNetwork(0, 0), {})
                              .status()
                              .message()),
              HasSubstr("--traffic_steps"));
}

TEST(Predictor, RefusesLayoutsThatCannotBe) {
  const std::vector<RunTrace> runs = {MakeDdpRun(Ranks(1))};
  RecordedPredictor predictor = Make(runs, FlatNetwork(0, 0));
  EXPECT_EQ(predictor.Predict(Ddp(0)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(predictor.Predict(Ddp(2, 0)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Predictor, PredictsHybrids) {
  PipelineRunForTest config{.pp = 2, .dp = 2};
  config.costs.output_bytes = 0;
  config.gradient_bytes = {4e6, 1e6};
  config.all_reduce_seconds = 0.004;
  const std::vector<RunTrace> runs = {MakePipelineRun(config)};
  RecordedPredictor predictor = Make(runs, FlatNetwork(0, 1e-9));
  const auto prediction = predictor.Predict({.pp = 2,
                                             .dp = 2,
                                             .schedule = "1f1b",
                                             .micro_batch = 16,
                                             .micro_batches = 4});
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_NEAR(prediction->step_seconds, PipelineStepSeconds(config), 1e-6);
  EXPECT_NEAR(prediction->examples_per_second,
              2 * 4 * 16 / PipelineStepSeconds(config), 1);
}

// Fitted at 2 ranks; 4 and 8 held out, with an all-reduce of 1 ns/B.
std::vector<RunTrace> Study(double truth_beta) {
  std::vector<RunTrace> runs;
  for (int64_t world_size : {2, 4, 8}) {
    for (int repetition = 0; repetition < 3; ++repetition) {
      DdpRunForTest config = Ranks(world_size);
      config.beta_seconds_per_byte = truth_beta;
      runs.push_back(MakeDdpRun(config));
    }
  }
  return runs;
}

TEST(ScorePredictions, IsExactWhereTheModelIsTheTruth) {
  const std::vector<RunTrace> runs = Study(1e-9);
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  const auto score = ScorePredictions(runs, cells, 2, FlatNetwork(0, 1e-9), {});
  ASSERT_TRUE(score.ok()) << score.status();
  ASSERT_EQ(score->points.size(), 2u);
  EXPECT_EQ(score->fitted_up_to, 2);
  EXPECT_LT(score->median_absolute_error, 1e-6);
  for (const ScoredPrediction& point : score->points) {
    EXPECT_EQ(point.prediction.layout.dp, point.cell->run.world_size);
    EXPECT_NEAR(point.measured_seconds, 0.036, 1e-9);
  }
}

TEST(ScorePredictions, SeesHowFarOffItIs) {
  std::vector<RunTrace> runs = Study(3e-9);  // 10 to 22, 22 to 28 ms: 42
  // The fitted runs match the network, so there is no warning.
  DdpRunForTest fitted = Ranks(2);
  fitted.beta_seconds_per_byte = 1e-9;
  for (RunTrace& run : runs) {
    if (run.ranks.size() == 2) run = MakeDdpRun(fitted);
  }
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  const auto score = ScorePredictions(runs, cells, 2, FlatNetwork(0, 1e-9), {});
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_NEAR(score->points[0].Error(), 0.036 / 0.042 - 1, 1e-4);
  EXPECT_FALSE(score->points[0].IsCovered());
  EXPECT_EQ(score->coverage, 0);
  EXPECT_NEAR(score->median_absolute_error, 1 - 0.036 / 0.042, 1e-4);
}

// Three runs each of ddp on 2, 4, 8 and 16 ranks with random differences, whose
// all-reduces cost `dearer` times the network's.
std::vector<RunTrace> StudyOf(double dearer, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> of_run(0, 0.00005);
  std::vector<RunTrace> runs;
  for (int64_t world_size : {2, 4, 8, 16}) {
    for (int i = 0; i < 3; ++i) {
      DdpRunForTest config = Ranks(world_size);
      config.beta_seconds_per_byte = dearer * 1e-9;
      config.trace.before_backward_seconds += of_run(random);
      runs.push_back(MakeDdpRun(config));
    }
  }
  return runs;
}

Score ScoreOf(const std::vector<RunTrace>& runs) {
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  const auto score = ScorePredictions(runs, cells, 4, FlatNetwork(0, 1e-9), {});
  EXPECT_TRUE(score.ok()) << score.status();
  return score.ok() ? *score : Score();
}

TEST(ScorePredictions, IntervalsHoldWhatTheModelWasOffByWhereItWasFitted) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> dearer(0, 0.7);
  double covered = 0, points = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Score score = ScoreOf(StudyOf(dearer(random), seed));
    for (const ScoredPrediction& point : score.points) {
      covered += point.IsCovered() ? 1 : 0;
      points += 1;
    }
  }
  EXPECT_EQ(points, 60);
  EXPECT_GE(covered, 0.9 * points);
}

TEST(ScorePredictions, AModelThatIsRightWhereItWasFittedWidensNothing) {
  const Score right = ScoreOf(StudyOf(1, 1));
  const Score wrong = ScoreOf(StudyOf(3, 1));
  EXPECT_GT(wrong.median_relative_width, 0.4);
  EXPECT_LT(right.median_relative_width, 0.06);
  ASSERT_EQ(wrong.points.size(), 2u);
  EXPECT_THAT(wrong.points[0].prediction.assumptions,
              Contains(HasSubstr("includes the model's error where ddp was "
                                 "recorded on several ranks: 14.")));
}

TEST(ScorePredictions, DoesNotLookAtWhatItPredicts) {
  // Held-out ranks compute twice as long, which must appear as an error.
  std::vector<RunTrace> runs = Study(0);
  DdpRunForTest slow = Ranks(4);
  slow.trace.before_backward_seconds += 0.034;
  for (RunTrace& run : runs) {
    if (run.ranks.size() == 4) run = MakeDdpRun(slow);
  }
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  const auto score = ScorePredictions(runs, cells, 2, FlatNetwork(0, 0), {});
  ASSERT_TRUE(score.ok());
  EXPECT_NEAR(score->points[0].Error(), -0.5, 1e-3);
  EXPECT_NEAR(score->points[1].Error(), 0, 1e-3);
}

TEST(ScorePredictions, MayLookAtRunsThatExchangeNothing) {
  std::vector<RunTrace> runs = Study(0);
  DdpRunForTest slow = Ranks(4);
  slow.trace.before_backward_seconds += 0.034;
  for (RunTrace& run : runs) {
    if (run.ranks.size() == 4) run = MakeDdpRun(slow);
  }
  slow.skip_communication = true;
  runs.push_back(MakeDdpRun(slow));
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  const auto score = ScorePredictions(runs, cells, 2, FlatNetwork(0, 0), {});
  ASSERT_TRUE(score.ok());
  // excludes the run without communication
  ASSERT_EQ(score->points.size(), 2u);
  EXPECT_NEAR(score->points[0].Error(), 0, 1e-3);
}

TEST(ScorePredictions, DoesNotLookAtAPipelinesRunsWithoutCommunication) {
  std::vector<RunTrace> runs = Study(0);
  runs.push_back(MakeDdpRun(Ranks(1)));
  PipelineRunForTest pipeline{.pp = 2};
  runs.push_back(MakePipelineRun(pipeline));
  pipeline.skip_communication = true;
  runs.push_back(MakePipelineRun(pipeline));
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  const auto score = ScorePredictions(runs, cells, 1, FlatNetwork(0, 0), {});
  ASSERT_TRUE(score.ok()) << score.status();
  ASSERT_EQ(score->points.size(), 3u);
  for (const ScoredPrediction& point : score->points) {
    EXPECT_EQ(point.prediction.layout.pp, 1);
  }
  EXPECT_THAT(score->left_out, Contains(HasSubstr("no timeline")));
}

// Fits to `repetitions` runs of one rank with steps of 34 ms that differ by 20
// ms.
Score ScoreFromRuns(int repetitions, const std::vector<RunTrace>& held_out,
                    std::vector<Cell>* cells) {
  std::vector<RunTrace> runs = held_out;
  for (int i = 0; i < repetitions; ++i) {
    DdpRunForTest config = Ranks(1);
    config.trace.before_backward_seconds += 0.010 * (i % 3);
    runs.push_back(MakeDdpRun(config));
  }
  std::vector<std::string> left_out;
  *cells = GroupIntoCells(runs, {}, &left_out);
  const auto score = ScorePredictions(runs, *cells, 1, FlatNetwork(0, 0), {});
  EXPECT_TRUE(score.ok()) << score.status();
  return score.ok() ? *score : Score();
}

TEST(Candidates, HaveTheChunksThatRan) {
  RecordedPredictor predictor = Make(
      {MakePipelineRun({.pp = 2, .schedule = "interleaved_1f1b", .chunks = 4})},
      FlatNetwork(0, 0));
  std::vector<std::string> left_out;
  std::vector<std::string> predicted;
  for (const Layout& layout : predictor.Candidates(2, 64, &left_out)) {
    if (predictor.Predict(layout).ok()) predicted.push_back(layout.Name());
  }
  EXPECT_THAT(predicted,
              ElementsAre("interleaved_1f1b x4 pp 2, 4 micro-batches"));
}

TEST(ScorePredictions, PredictsTheChunksThatRan) {
  PipelineRunForTest pipeline{
      .pp = 2, .schedule = "interleaved_1f1b", .chunks = 4};
  std::vector<RunTrace> runs = {MakeDdpRun(Ranks(2)),
                                MakePipelineRun(pipeline)};
  pipeline.dp = 2;
  runs.push_back(MakePipelineRun(pipeline));
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  const auto score = ScorePredictions(runs, cells, 2, FlatNetwork(0, 0), {});
  ASSERT_TRUE(score.ok()) << score.status();
  ASSERT_EQ(score->points.size(), 1u);
  EXPECT_EQ(score->points[0].prediction.layout.chunks, 4);
  EXPECT_NEAR(score->points[0].Error(), 0, 1e-3);
}

TEST(ScorePredictions, HasNoCoverageFromFewerThanThreeRuns) {
  const std::vector<RunTrace> held_out = {MakeDdpRun(Ranks(2))};
  std::vector<Cell> cells;
  for (int repetitions : {1, 2}) {
    const Score score = ScoreFromRuns(repetitions, held_out, &cells);
    ASSERT_EQ(score.points.size(), 1u);
    EXPECT_EQ(score.points[0].prediction.fitted_runs, repetitions);
    EXPECT_TRUE(std::isnan(score.coverage)) << repetitions;
  }
  EXPECT_EQ(ScoreFromRuns(3, held_out, &cells).coverage, 1);
}

TEST(ScorePredictions, SaysHowWideTheIntervalsAre) {
  const std::vector<RunTrace> held_out = {MakeDdpRun(Ranks(2))};
  std::vector<Cell> cells;
  const Score score = ScoreFromRuns(2, held_out, &cells);
  ASSERT_EQ(score.points.size(), 1u);
  const Prediction& prediction = score.points[0].prediction;
  EXPECT_DOUBLE_EQ(score.median_relative_width, (prediction.step_interval.high -
                                                 prediction.step_interval.low) /
                                                    prediction.step_seconds);
  EXPECT_GT(score.median_relative_width, 2);
}

TEST(Predictor, SpeedHasNoUpperEndWhereTheStepMayBeNothing) {
  const std::vector<RunTrace> held_out = {MakeDdpRun(Ranks(2))};
  std::vector<Cell> cells;
  const Score score = ScoreFromRuns(2, held_out, &cells);
  ASSERT_EQ(score.points.size(), 1u);
  const Prediction& prediction = score.points[0].prediction;
  ASSERT_EQ(prediction.step_interval.low, 0);
  EXPECT_TRUE(std::isinf(prediction.examples_interval.high));
  EXPECT_LT(prediction.examples_interval.low, prediction.examples_per_second);
}

TEST(ScorePredictions, RefusesAnEmptySide) {
  const std::vector<RunTrace> runs = Study(0);
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  EXPECT_THAT(
      std::string(ScorePredictions(runs, cells, 8, FlatNetwork(0, 0), {})
                      .status()
                      .message()),
      HasSubstr("no runs of more than 8 ranks"));
  EXPECT_THAT(
      std::string(ScorePredictions(runs, cells, 1, FlatNetwork(0, 0), {})
                      .status()
                      .message()),
      HasSubstr("fitting up to 1 ranks"));
}

TEST(ScorePredictions, NamesWhatItCouldNotPredict) {
  std::vector<RunTrace> runs = Study(0);
  runs.push_back(MakePipelineRun({.pp = 4}));
  std::vector<std::string> left_out;
  const std::vector<Cell> cells = GroupIntoCells(runs, {}, &left_out);
  const auto score = ScorePredictions(runs, cells, 2, FlatNetwork(0, 0), {});
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->points.size(), 2u);
  EXPECT_THAT(score->left_out, Contains(HasSubstr("//trainers:pipeline")));
}

// Stages of 1 ms forward and 2 ms backward, micro-batches of 16.
PipelineRunForTest Fast() {
  PipelineRunForTest config{.pp = 2};
  config.costs = {0.001, 0.001, 0.001, 0.002, 0};
  config.outside_seconds = 0.001;
  config.gradient_bytes = {};
  return config;
}

TEST(Recommend, PicksThePipelineWhereCommunicationIsDear) {
  const std::vector<RunTrace> runs = {MakeDdpRun(Ranks(1, 64)),
                                      MakePipelineRun(Fast())};
  // A byte costs 10 ns: 60 ms for ddp's gradients.
  RecordedPredictor predictor = Make(runs, FlatNetwork(0, 1e-8));
  const auto best =
      Recommend(predictor, {.world_size = 2, .global_batch = 128});
  ASSERT_TRUE(best.ok()) << best.status();
  const Prediction& first = best->candidates[0];
  EXPECT_EQ(first.layout.pp, 2);
  EXPECT_EQ(first.layout.micro_batches, 8);
  // (8 + 1) * 3 ms, and 1 ms outside.
  EXPECT_NEAR(first.step_seconds, 0.028, 1e-5);
  EXPECT_THAT(best->reason, HasSubstr("is the fastest of"));
  EXPECT_THAT(best->reason,
              HasSubstr("; the best of another kind is ddp x2, "));
}

TEST(Recommend, PicksDdpWhereCommunicationIsFree) {
  PipelineRunForTest slow = Fast();
  slow.costs = {0.01, 0.01, 0.01, 0.02, 0};
  const std::vector<RunTrace> runs = {MakeDdpRun(Ranks(1, 64)),
                                      MakePipelineRun(slow)};
  RecordedPredictor predictor = Make(runs, FlatNetwork(0, 0));
  const auto best =
      Recommend(predictor, {.world_size = 2, .global_batch = 128});
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ(best->candidates[0].layout.Name(), "ddp x2");
  for (size_t i = 1; i < best->candidates.size(); ++i) {
    EXPECT_GE(best->candidates[i].step_seconds * 1.0002,
              best->candidates[i - 1].step_seconds);
  }
}

TEST(Recommend, FindsTheBetterBuckets) {
  DdpRunForTest config = Ranks(1);
  config.trace.buckets = {{1e5, 0.018}, {1e5, 0.019}, {1e5, 0.020}};
  const std::vector<RunTrace> runs = {MakeDdpRun(config)};
  // Only latency matters: 5 ms per call. Three take 15 ms from 18 ms on, one
  // takes 5 ms from 20 ms on.
  RecordedPredictor predictor = Make(runs, FlatNetwork(0.005, 0));
  const auto best =
      Recommend(predictor, {.world_size = 8, .global_batch = 512});
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_GT(best->candidates[0].layout.bucket_bytes, 0);
  EXPECT_THAT(best->reason, HasSubstr("; next comes ddp x8"));
  EXPECT_NEAR(best->candidates[0].step_seconds, 0.039, 1e-6);
  EXPECT_NEAR(best->candidates.back().step_seconds, 0.047, 1e-6);
}

TEST(Recommend, KeepsToTheMemory) {
  DdpRunForTest large = Ranks(1);
  large.peak_bytes = 3e9;
  PipelineRunForTest small = Fast();
  small.base_bytes = 1e9;
  small.bytes_per_activation = 1e6;
  const std::vector<RunTrace> runs = {MakeDdpRun(large),
                                      MakePipelineRun(small)};
  RecordedPredictor predictor = Make(runs, FlatNetwork(0, 0));
  RecommendConfig config{.world_size = 2, .global_batch = 128};
  config.memory_limit_bytes = 2e9;
  const auto best = Recommend(predictor, config);
  ASSERT_TRUE(best.ok()) << best.status();
  for (const Prediction& candidate : best->candidates) {
    EXPECT_EQ(candidate.layout.pp, 2);
    EXPECT_LE(candidate.peak_bytes, 2e9);
  }
  EXPECT_THAT(best->left_out,
              Contains(HasSubstr("ddp x2: takes 3 GB on its fullest rank")));
  config.memory_limit_bytes = 1e8;
  EXPECT_EQ(Recommend(predictor, config).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(Recommend, LeavesOutWhatIsNotKnownOrDoesNotDivide) {
  PipelineRunForTest other_cut = Fast();
  other_cut.micro_batch = 8;
  const std::vector<RunTrace> runs = {MakeDdpRun(Ranks(1)),
                                      MakePipelineRun(Fast()),
                                      MakePipelineRun(other_cut)};
  RecordedPredictor predictor = Make(runs, FlatNetwork(0, 0));
  const auto best =
      Recommend(predictor, {.world_size = 3, .global_batch = 192});
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_THAT(best->left_out,
              ElementsAre(HasSubstr("3 ranks do not divide by 2")));
  EXPECT_THAT(
      std::string(Recommend(predictor, {.world_size = 3, .global_batch = 100})
                      .status()
                      .message()),
      HasSubstr("a global batch of 100 does not divide by 3"));
  EXPECT_EQ(Recommend(predictor, {.world_size = 3, .global_batch = 0})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rankwise
