// Runs and studies with known ledgers and losses, for the tests of this folder.
#ifndef RANKWISE_ANALYSIS_LEDGER_CELLS_FOR_TEST_H_
#define RANKWISE_ANALYSIS_LEDGER_CELLS_FOR_TEST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "analysis/ledger/ledger.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/run_trace.h"
#include "analysis/runs/trace_for_test.h"

namespace rankwise {

// `step` counts from 1, warm-up included.
using PartsForTest = std::function<LedgerParts(int64_t rank, int64_t step)>;

// MakeRun(config) with steps of these parts. A tenth of the computation is the
// optimizer's. All exposed communication must be given as dp's; in a pipeline,
// half of it becomes the replicas' all-reduce, a quarter messages in transit,
// and a quarter passing messages to the transport.
RunTrace MakeRunOf(const RunForTest& config, const PartsForTest& parts);

struct CellForTest {
  RunForTest run;
  PartsForTest parts;
  std::map<std::string, std::string> flags = {};  // in addition to MakeRun's
  int repetitions = 2;
  bool captured = false;
  std::vector<RecordedAxis> mesh = {};
  int64_t hosts = 1;  // ranks are divided evenly, in rank order
  // If set, replaces `parts`, for repetitions that differ.
  std::function<PartsForTest(int repetition)> parts_of_run = {};
};

// Cells and their ledgers, without warm-up. `ledgers` points into `cells`.
struct StudyForTest {
  explicit StudyForTest(const std::vector<CellForTest>& config);
  StudyForTest(const StudyForTest&) = delete;
  StudyForTest& operator=(const StudyForTest&) = delete;

  // Returns the only cell of this trainer, --batch_size and number of ranks.
  const CellLedger& Find(const std::string& trainer, int64_t world_size,
                         int64_t batch_size, bool ablation = false) const;

  std::vector<Cell> cells;
  std::vector<CellLedger> ledgers;
};

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_LEDGER_CELLS_FOR_TEST_H_
