#include "analysis/cost_model/change_points.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rankwise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kCutOff = 3.2;  // standard errors
constexpr double kPenalty = 6;
constexpr size_t kMaxPlaces = 48;
constexpr double kNormalQuartile = 0.674490;

// A point's distance from the line through its neighbours, and the seconds that
// a relative error moves it by: of the point and of both neighbours.
struct PseudoResidual {
  double seconds = 0;
  double sampling_variance = 0;
  double per_spread_variance = 0;

  double Standard(double spread) const {
    return std::abs(seconds) /
           std::sqrt(sampling_variance + spread * spread * per_spread_variance);
  }
};

PseudoResidual ResidualFromNeighbours(absl::Span<const Observation> three) {
  const auto x = [&three](int i) { return three[i].terms[1]; };
  const double left = (x(2) - x(1)) / (x(2) - x(0));
  const double weights[] = {-left, 1, left - 1};
  PseudoResidual residual;
  for (int i = 0; i < 3; ++i) {
    const double part = weights[i] * three[i].seconds;
    residual.seconds += part;
    residual.per_spread_variance += part * part;
    residual.sampling_variance += std::pow(part * three[i].relative_sigma, 2);
  }
  return residual;
}

double MedianStandard(const std::vector<PseudoResidual>& residuals,
                      double spread) {
  std::vector<double> sizes;
  for (const PseudoResidual& residual : residuals) {
    sizes.push_back(residual.Standard(spread));
  }
  const auto middle = sizes.begin() + sizes.size() / 2;
  std::nth_element(sizes.begin(), middle, sizes.end());
  return *middle;
}

// Where pieces may begin or end: everywhere, or at evenly picked points.
std::vector<size_t> Places(size_t points) {
  const size_t parts = std::min(points, kMaxPlaces);
  std::vector<size_t> places;
  for (size_t i = 0; i <= parts; ++i) places.push_back(i * points / parts);
  return places;
}

double CostOfPiece(absl::Span<const Observation> points) {
  const Terms line = RobustFit(points, 2);
  double cost = 0;
  for (const Observation& point : points) {
    const double residual = LogResidual(line, point) / point.relative_sigma;
    cost += std::min(residual * residual, kCutOff * kCutOff);
  }
  return cost;
}

// The cheapest divisions into 1, 2, ... pieces.
class Divisions {
 public:
  Divisions(absl::Span<const Observation> points, int min_points)
      : places_(Places(points.size())),
        costs_(places_.size(), std::vector<double>(places_.size(), kInfinity)) {
    for (size_t i = 0; i < places_.size(); ++i) {
      for (size_t j = i + 1; j < places_.size(); ++j) {
        const size_t size = places_[j] - places_[i];
        if (size < static_cast<size_t>(min_points)) continue;
        costs_[i][j] = CostOfPiece(points.subspan(places_[i], size));
      }
    }
    best_.push_back(costs_[0]);
  }

  void AddPiece() {
    const std::vector<double>& before = best_.back();
    std::vector<double> best(places_.size(), kInfinity);
    std::vector<size_t> from(places_.size(), 0);
    for (size_t j = 1; j < places_.size(); ++j) {
      for (size_t i = 1; i < j; ++i) {
        const double cost = before[i] + costs_[i][j];
        if (cost >= best[j]) continue;
        best[j] = cost;
        from[j] = i;
      }
    }
    best_.push_back(std::move(best));
    from_.push_back(std::move(from));
  }

  // Of the last number of pieces that was added.
  double cost() const { return best_.back().back(); }

  // Of `pieces` pieces.
  std::vector<size_t> Starts(int pieces) const {
    std::vector<size_t> starts;
    size_t end = places_.size() - 1;
    for (int piece = pieces - 1; piece > 0; --piece) {
      end = from_[piece - 1][end];
      starts.push_back(places_[end]);
    }
    starts.push_back(0);
    std::reverse(starts.begin(), starts.end());
    return starts;
  }

 private:
  const std::vector<size_t> places_;
  std::vector<std::vector<double>> costs_;  // from place to place
  // By number of pieces - 1: up to a place, and where its last piece begins.
  std::vector<std::vector<double>> best_;
  std::vector<std::vector<size_t>> from_;  // from two pieces on
};

}  // namespace

Observation PointOfLine(double bytes, double seconds, double relative_sigma) {
  return {{1, bytes}, seconds, relative_sigma};
}

double LocalSpread(absl::Span<const Observation> points) {
  std::vector<PseudoResidual> residuals;
  for (size_t i = 2; i < points.size(); ++i) {
    residuals.push_back(ResidualFromNeighbours(points.subspan(i - 2, 3)));
  }
  if (residuals.empty() || MedianStandard(residuals, 0) <= kNormalQuartile) {
    return 0;
  }
  double low = 0, high = 1e-3;
  while (MedianStandard(residuals, high) > kNormalQuartile) high *= 2;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    const bool too_small = MedianStandard(residuals, middle) > kNormalQuartile;
    (too_small ? low : high) = middle;
  }
  return high;
}

std::vector<size_t> FindPieces(absl::Span<const Observation> points,
                               int max_pieces, int min_points) {
  Divisions divisions(points, min_points);
  const double penalty =
      kPenalty * std::log(static_cast<double>(points.size()));
  double least = divisions.cost();
  int chosen = 1;
  for (int pieces = 2; pieces <= max_pieces; ++pieces) {
    divisions.AddPiece();
    const double cost = divisions.cost() + penalty * (pieces - 1);
    if (cost >= least) continue;
    least = cost;
    chosen = pieces;
  }
  return divisions.Starts(chosen);
}

}  // namespace rankwise
