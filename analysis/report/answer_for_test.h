// Answers made up for the tests of the report.
#ifndef RANKWISE_ANALYSIS_REPORT_ANSWER_FOR_TEST_H_
#define RANKWISE_ANALYSIS_REPORT_ANSWER_FOR_TEST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "analysis/answer/answer.h"

namespace rankwise {

// Something in every part: single, ddp on 1 to 8 ranks, two pipelines, two
// networks, predictions with their score. Figures are plausible, not measured.
// `name` stands in every text that a user or a machine may have chosen.
std::unique_ptr<Answer> FullAnswer(const std::string& name);

// One run of one rank, and a note on why that says little.
std::unique_ptr<Answer> BareAnswer();

// Five repetitions within 2 % of `examples_per_second`. A trainer that is none
// of "single" and "ddp" is a schedule of the trainer "pipeline".
Cell MakeCell(const std::string& trainer, int64_t ranks, double rank_batch,
              double examples_per_second);

// The cell's step, divided as is usual for its trainer.
Ledger MakeLedger(const Cell& cell);

Waterfall MakeWaterfall(const Cell& cell, const Cell& base, Scaling scaling);

// All-reduce and others between 2 and 8 ranks, in two pieces.
NetworkModel MakeNetwork(const std::string& name, const std::string& backend);

// 2 ranks and 4 micro-batches.
TimelinePicture MakeTimelines(const Cell& cell);

// Four layers, one of them without operations, at batch 64.
LayerProfile MakeProfile(const Cell& cell, const std::string& name);

// Of ddp, +- 6 %.
Prediction MakePrediction(int64_t ranks, double step_seconds);

// 60 steps; equal seeds give equal curves.
LossCurve MakeLosses(const std::string& name, int64_t seed);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_REPORT_ANSWER_FOR_TEST_H_
