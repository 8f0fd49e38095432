// Parts of an answer, made up for the tests of the report.

#ifndef ANALYSIS_REPORT_PARTS_FOR_TEST_H_
#define ANALYSIS_REPORT_PARTS_FOR_TEST_H_

#include <cstdint>
#include <string>

#include "analysis/answer/answer.h"

namespace rankwise {

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

// Of ddp, +- 6 %.
Prediction MakePrediction(int64_t ranks, double step_seconds);

// 60 steps; equal seeds give equal curves.
LossCurve MakeLosses(const std::string& name, int64_t seed);

}  // namespace rankwise

#endif  // ANALYSIS_REPORT_PARTS_FOR_TEST_H_
