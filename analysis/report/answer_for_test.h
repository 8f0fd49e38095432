// Made-up answers for the tests of the report.
#ifndef RANKWISE_ANALYSIS_REPORT_ANSWER_FOR_TEST_H_
#define RANKWISE_ANALYSIS_REPORT_ANSWER_FOR_TEST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "analysis/answer/answer.h"

namespace rankwise {

// Has data for every part: single, ddp on 1 to 8 ranks, two pipelines, two
// networks, predictions with their score. Figures are plausible, not measured.
// `name` is in every text that users or machines may choose.
std::unique_ptr<Answer> FullAnswer(const std::string& name);

// Has only a base case on one rank, and a note that repetitions are missing.
std::unique_ptr<Answer> BareAnswer();

// Five repetitions within 2 % of `examples_per_second`. A `trainer` other than
// "single" and "ddp" is a schedule of the trainer "pipeline".
Cell MakeCell(const std::string& trainer, int64_t ranks, double rank_batch,
              double examples_per_second);

// Divides the cell's step into parts that are plausible for its trainer.
Ledger MakeLedger(const Cell& cell);

Waterfall MakeWaterfall(const Cell& cell, const Cell& base, Scaling scaling);

// All-reduce, and for gloo all-gather and broadcast, on 2, 4 and 8 ranks.
NetworkModel MakeNetwork(const std::string& name, const std::string& backend);

// One step on 2 ranks with 4 micro-batches.
TimelinePicture MakeTimelines(const Cell& cell);

// Four layers at batch 64, one of them without operations.
LayerProfile MakeProfile(const Cell& cell, const std::string& name);

// A prediction for ddp with an interval of +-6 %.
Prediction MakePrediction(int64_t ranks, double step_seconds);

// 60 steps; equal seeds give equal curves.
LossCurve MakeLosses(const std::string& name, int64_t seed);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_REPORT_ANSWER_FOR_TEST_H_
