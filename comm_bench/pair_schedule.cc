#include "comm_bench/pair_schedule.h"

#include <algorithm>
#include <utility>

namespace rankwise {

std::vector<PairRound> PairsOneByOne(int world_size) {
  std::vector<PairRound> rounds;
  for (int low = 0; low < world_size; ++low) {
    for (int high = low + 1; high < world_size; ++high) {
      rounds.push_back({{low, high}});
    }
  }
  return rounds;
}

// The last seat stays while the others move on by one; whoever meets the seat
// that an odd world leaves empty pauses.
std::vector<PairRound> PairsInRounds(int world_size) {
  const int seats = world_size + world_size % 2;
  std::vector<PairRound> rounds;
  for (int shift = 0; shift < seats - 1 && world_size > 1; ++shift) {
    auto at = [&](int seat) {
      return seat == 0 ? seats - 1 : (seat + shift) % (seats - 1);
    };
    PairRound round;
    for (int seat = 0; seat < seats / 2; ++seat) {
      const auto pair = std::minmax({at(seat), at(seats - 1 - seat)});
      if (pair.second < world_size) round.push_back(pair);
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

}  // namespace rankwise
