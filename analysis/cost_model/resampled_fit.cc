#include "analysis/cost_model/resampled_fit.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace rankwise {
namespace {

constexpr double kTail = 0.025;

using Rows = std::vector<Observation>;

absl::Span<const Observation> PieceOf(const Rows& rows,
                                      absl::Span<const size_t> starts,
                                      size_t piece) {
  const size_t end =
      piece + 1 < starts.size() ? starts[piece + 1] : rows.size();
  return absl::MakeConstSpan(rows).subspan(starts[piece], end - starts[piece]);
}

std::vector<Terms> FitPieces(const Rows& rows, absl::Span<const size_t> starts,
                             int terms, const std::vector<Terms>* near) {
  std::vector<Terms> fits;
  for (size_t i = 0; i < starts.size(); ++i) {
    fits.push_back(RobustFit(PieceOf(rows, starts, i), terms,
                             near == nullptr ? nullptr : &(*near)[i]));
  }
  return fits;
}

double SpreadAbout(const std::vector<Terms>& fits, const Rows& rows,
                   absl::Span<const size_t> starts, double degrees) {
  std::vector<double> residuals, sigmas;
  for (size_t i = 0; i < starts.size(); ++i) {
    for (const Observation& row : PieceOf(rows, starts, i)) {
      residuals.push_back(LogResidual(fits[i], row));
      sigmas.push_back(row.relative_sigma);
    }
  }
  return ExcessSpread(residuals, sigmas, degrees);
}

// By piece and coefficient, the values of all resamples.
using Draws = std::vector<std::array<std::vector<double>, kMaxTerms>>;

Draws DrawFits(Rows rows, absl::Span<const absl::Span<const double>> redrawn,
               absl::Span<const size_t> starts, int terms,
               const std::vector<Terms>& fits, double spread, double degrees,
               uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::chi_squared_distribution<double> chi_squared(degrees);
  Draws draws(starts.size());
  const size_t resamples = redrawn.empty() ? 0 : redrawn[0].size();
  for (size_t draw = 0; draw < resamples; ++draw) {
    const double drawn_spread =
        spread > 0 ? spread * std::sqrt(degrees / chi_squared(random)) : 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].seconds =
          redrawn[i][draw] * std::exp(drawn_spread * normal(random));
    }
    const std::vector<Terms> redone = FitPieces(rows, starts, terms, &fits);
    for (size_t i = 0; i < starts.size(); ++i) {
      for (int k = 0; k < terms; ++k) draws[i][k].push_back(redone[i][k]);
    }
  }
  return draws;
}

}  // namespace

ResampledFit FitResampled(absl::Span<const Observation> given,
                          absl::Span<const absl::Span<const double>> redrawn,
                          absl::Span<const size_t> starts, int terms,
                          uint64_t seed) {
  Rows rows(given.begin(), given.end());
  const auto degrees = std::max(
      1.0, static_cast<double>(rows.size()) -
               static_cast<double>(starts.size()) * static_cast<double>(terms));
  std::vector<Terms> fits = FitPieces(rows, starts, terms, nullptr);
  ResampledFit result;
  result.excess_spread = SpreadAbout(fits, rows, starts, degrees);
  for (Observation& row : rows) {
    row.relative_sigma = std::hypot(row.relative_sigma, result.excess_spread);
  }
  fits = FitPieces(rows, starts, terms, &fits);
  const Draws draws = DrawFits(rows, redrawn, starts, terms, fits,
                               result.excess_spread, degrees, seed);
  for (size_t i = 0; i < starts.size(); ++i) {
    FittedPiece piece = {fits[i], {}};
    for (int k = 0; k < terms; ++k) {
      if (draws[i][k].empty()) continue;
      piece.intervals[k] = {Quantile(draws[i][k], kTail),
                            Quantile(draws[i][k], 1 - kTail)};
    }
    result.pieces.push_back(piece);
  }
  return result;
}

}  // namespace rankwise
