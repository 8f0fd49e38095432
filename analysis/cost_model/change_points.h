// Where a cost changes its line, as algorithms and protocols do with the size.

#ifndef ANALYSIS_COST_MODEL_CHANGE_POINTS_H_
#define ANALYSIS_COST_MODEL_CHANGE_POINTS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "analysis/cost_model/robust_fit.h"

namespace rankwise {

// A point of a line: alpha + beta * bytes.
Observation PointOfLine(double bytes, double seconds, double relative_sigma);

// The spread of points beyond their relative_sigma, seen without a model of the
// whole: each point beside the line through its two neighbours (Gasser, Sroka
// and Jennen-Steinmetz 1986), of which the median is taken, so that the few
// that lie across a change do not count. Points by bytes, all different.
double LocalSpread(absl::Span<const Observation> points);

// The first point of each of at most `max_pieces` pieces of at least
// `min_points` points: {0} where the points ask for no change. Minimises, by
// dynamic programming over all divisions (of more than 48 points: over as many
// places), the sum of the squared standard residuals from each piece's own line
// + 6 ln n per change. A change brings three parameters, for which the BIC
// (Schwarz 1978) asks 3 ln n; twice as much, as the spread of so few points is
// itself uncertain. Squares are cut off at 3.2^2, so that one point that is far
// off cannot pay for a piece of its own (Fearnhead and Rigaill 2019). Points by
// bytes, all different.
std::vector<size_t> FindPieces(absl::Span<const Observation> points,
                               int max_pieces, int min_points);

}  // namespace rankwise

#endif  // ANALYSIS_COST_MODEL_CHANGE_POINTS_H_
