// Studies whose losses are known, for the tests of this folder.

#ifndef ANALYSIS_LEDGER_CELLS_FOR_TEST_H_
#define ANALYSIS_LEDGER_CELLS_FOR_TEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/cell.h"
#include "analysis/ledger/parts_for_test.h"
#include "analysis/ledger/waterfall.h"
#include "analysis/trace_for_test.h"

namespace rankwise {

struct CellForTest {
  RunForTest run;
  PartsForTest parts;
  std::map<std::string, std::string> flags = {};  // beside MakeRun's
  int repetitions = 2;
  bool captured = false;
};

// Cells with their ledgers, without warm-up. `ledgers` points into `cells`.
struct StudyForTest {
  explicit StudyForTest(const std::vector<CellForTest>& config);
  StudyForTest(const StudyForTest&) = delete;
  StudyForTest& operator=(const StudyForTest&) = delete;

  // The only one of this trainer, with this --batch_size and these ranks.
  const CellLedger& Find(const std::string& trainer, int64_t world_size,
                         int64_t batch_size, bool ablation = false) const;

  std::vector<Cell> cells;
  std::vector<CellLedger> ledgers;
};

}  // namespace rankwise

#endif  // ANALYSIS_LEDGER_CELLS_FOR_TEST_H_
