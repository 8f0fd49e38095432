// Which pairs of ranks measure when.
#ifndef RANKWISE_COMM_BENCH_PAIR_SCHEDULE_H_
#define RANKWISE_COMM_BENCH_PAIR_SCHEDULE_H_

#include <utility>
#include <vector>

namespace rankwise {

using PairRound = std::vector<std::pair<int, int>>;  // disjoint, lower first

// All pairs, one a round.
std::vector<PairRound> PairsOneByOne(int world_size);

// All pairs in as few rounds as possible: the circle method of tournaments.
std::vector<PairRound> PairsInRounds(int world_size);

}  // namespace rankwise

#endif  // RANKWISE_COMM_BENCH_PAIR_SCHEDULE_H_
