// Runs whose ledger is known, for the tests of this folder.

#ifndef ANALYSIS_LEDGER_PARTS_FOR_TEST_H_
#define ANALYSIS_LEDGER_PARTS_FOR_TEST_H_

#include <cstdint>
#include <functional>

#include "analysis/ledger/ledger.h"
#include "analysis/run_trace.h"
#include "analysis/trace_for_test.h"

namespace rankwise {

// `step` counts from 1, warm-up included.
using PartsForTest = std::function<LedgerParts(int64_t rank, int64_t step)>;

// MakeRun(config), with steps of these parts; a tenth of the computation is the
// optimizer's. In a pipeline, of the exposed communication half is the
// replicas' all-reduce, a quarter messages under way, and a quarter messages
// handed over.
RunTrace MakeRunOf(const RunForTest& config, const PartsForTest& parts);

}  // namespace rankwise

#endif  // ANALYSIS_LEDGER_PARTS_FOR_TEST_H_
