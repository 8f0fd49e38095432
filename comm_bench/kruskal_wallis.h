// Whether several samples come from one distribution.
#ifndef RANKWISE_COMM_BENCH_KRUSKAL_WALLIS_H_
#define RANKWISE_COMM_BENCH_KRUSKAL_WALLIS_H_

#include <vector>

#include "absl/types/span.h"

namespace rankwise::comm_bench {

// How likely samples from one distribution would differ as much as these: the
// rank sums of Kruskal and Wallis (1952), against 199 random assignments of the
// values to the samples (a Monte Carlo test: Hope 1968), hence 0.005 at least.
// The same for the same samples. No sample is empty; NaN for fewer than two.
// It takes values for independent: drift within a sample makes it too small.
double KruskalWallisPValue(absl::Span<const std::vector<double>> samples);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_KRUSKAL_WALLIS_H_
