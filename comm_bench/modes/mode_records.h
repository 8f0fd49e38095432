// What the modes beside the sweep write to the records.
#ifndef RANKWISE_COMM_BENCH_MODES_MODE_RECORDS_H_
#define RANKWISE_COMM_BENCH_MODES_MODE_RECORDS_H_

#include <cstdint>
#include <string>

#include "comm_bench/modes/ladder.h"
#include "comm_bench/modes/pair_matrix.h"
#include "comm_bench/modes/replay.h"
#include "comm_bench/output/row.h"
#include "records/record.h"

namespace rankwise::comm_bench {

// Round trips between rank `rank` and a higher one, timed by `rank`.
CollectiveRecord RecordOf(const PairMatrix::Samples& samples, int rank,
                          int64_t launch);

// Rank `rank`'s replayed steps; `layer` is "gaps" or "back_to_back".
CollectiveRecord RecordOf(const ReplaySamples& samples, bool stopped,
                          const std::string& layer, int rank, int world_size,
                          int64_t launch);

// What a rung's iterations are samples of; without times.
Row RowOf(const LadderResult& ladder, const LadderRung& rung);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_MODE_RECORDS_H_
