#include "comm_bench/modes/overlap.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "ATen/ops/empty_like.h"
#include "ATen/ops/full.h"
#include "ATen/ops/mm.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/modes/beside_compute.h"
#include "comm_bench/modes/overlap_definitions.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/timing/agreement.h"
#include "comm_bench/timing/order_statistics.h"
#include "comm_bench/timing/timing.h"

namespace rankwise::comm_bench {
namespace {

// Runs of a collective and a computation on one rank.
class Runs {
 public:
  Runs(c10d::ProcessGroup& group, Control& control,
       const Collective& collective, const Call& call)
      : group_(group),
        control_(control),
        collective_(collective),
        call_(call),
        buffers_(collective.make(call)) {}

  BesideTimes Run(bool communicate, const std::function<void()>& compute) {
    if (communicate && collective_.fill != nullptr) {
      collective_.fill(call_, buffers_);
    }
    SynchronizeDevice(call_.device);
    control_.Barrier();
    return RunBeside(group_, communicate ? &collective_ : nullptr, call_,
                     buffers_, compute);
  }

  // The median of some runs of the slowest rank; the first warms up.
  double Typical(bool communicate, const std::function<void()>& compute) {
    constexpr int kRuns = 9;
    std::vector<double> seconds;
    Run(communicate, compute);
    for (int i = 0; i < kRuns; ++i) {
      seconds.push_back(Run(communicate, compute).end);
    }
    return control_.Max({Median(seconds)})[0];
  }

 private:
  c10d::ProcessGroup& group_;
  Control& control_;
  const Collective& collective_;
  const Call& call_;
  Buffers buffers_;
};

std::function<void()> Products(int64_t size, c10::Device device,
                               int64_t times) {
  const at::Tensor a =
      at::full({size, size}, 0.5, at::TensorOptions(at::kFloat).device(device));
  return [a, product = at::empty_like(a), times]() mutable {
    for (int64_t i = 0; i < times; ++i) at::mm_out(product, a, a);
  };
}

// As many products as take as long as asked for; the same on every rank. Many
// in a row are slower than one: the guess is corrected by what it took.
int64_t CountProducts(Runs& runs, const Call& call,
                      const OverlapConfig& config) {
  constexpr double kMost = 1e6;
  constexpr int kGuesses = 3;
  const double wanted = config.compute_seconds > 0
                            ? config.compute_seconds
                            : runs.Typical(true, nullptr);
  double count = 1;
  for (int i = 0; i < kGuesses; ++i) {
    const auto products =
        Products(config.gemm_size, call.device, static_cast<int64_t>(count));
    const double seconds = runs.Typical(false, products);
    count = std::clamp(std::round(count * wanted / seconds), 1.0, kMost);
  }
  return static_cast<int64_t>(count);
}

// "all_reduce of 4096 bytes, float32, sum, in place,"; "barrier".
std::string Title(const CallDescription& call) {
  if (call.dtype.empty()) return call.collective;
  return absl::StrCat(call.collective, " of ", call.bytes, " bytes, ",
                      call.dtype, call.op.empty() ? "" : ", ", call.op,
                      call.in_place ? ", in place," : ", out of place,");
}

// What the computation took within both.
std::vector<double> ComputeWithinBoth(const OverlapSamples& samples) {
  std::vector<double> seconds;
  for (size_t i = 0; i < samples.both.size(); ++i) {
    seconds.push_back(samples.compute_end[i] - samples.compute_begin[i]);
  }
  return seconds;
}

using Figure = double OverlapFigures::*;
using Figures = std::vector<std::pair<Figure, std::vector<double>>>;

// Every figure of every iteration.
Figures FiguresByIteration(const OverlapSamples& samples) {
  using F = OverlapFigures;
  const std::vector<double> within = ComputeWithinBoth(samples);
  Figures figures = {{&F::compute_seconds, samples.compute},
                     {&F::comm_seconds, samples.comm},
                     {&F::both_seconds, samples.both},
                     {&F::osu, {}},
                     {&F::imb_nbc, {}},
                     {&F::hta, {}},
                     {&F::union_seconds, {}},
                     {&F::union_share, {}},
                     {&F::compute_slowdown, {}},
                     {&F::comm_slowdown, {}}};
  for (size_t i = 0; i < samples.both.size(); ++i) {
    const Intervals compute = {
        {samples.compute_begin[i], samples.compute_end[i]}};
    const Intervals comm = {{0, samples.comm_end[i]}};
    const UnionOverlap overlap = IntervalUnionOverlap(compute, comm);
    const double values[] = {
        OsuOverlap(samples.both[i], samples.compute[i], samples.comm[i]),
        ImbNbcOverlap(samples.both[i], samples.compute[i], samples.comm[i]),
        HtaOverlap(compute, comm),
        overlap.seconds,
        overlap.share,
        within[i] / samples.compute[i],
        samples.comm_end[i] / samples.comm[i]};
    for (size_t f = 0; f < std::size(values); ++f) {
      figures[3 + f].second.push_back(values[f]);
    }
  }
  return figures;
}

void AppendLine(const std::string& title, const OverlapFigures& f,
                std::string& text) {
  absl::StrAppendFormat(
      &text,
      "  %4s %8.3f %8.3f %9.3f  %6.1f %% %6.1f %% %6.1f %% %7.3f ms %5.1f %%"
      "  %6.2f x %6.2f x\n",
      title, f.compute_seconds * 1e3, f.comm_seconds * 1e3,
      f.both_seconds * 1e3, f.osu * 100, f.imb_nbc * 100, f.hta * 100,
      f.union_seconds * 1e3, f.union_share * 100, f.compute_slowdown,
      f.comm_slowdown);
}

// This rank's, and then every rank's.
OverlapRank RankOf(const OverlapSamples& samples) {
  OverlapRank rank;
  for (const auto& [figure, values] : FiguresByIteration(samples)) {
    const Estimate estimate = EstimateMedian(values);
    rank.figures.*figure = estimate.value;
    rank.reaches.*figure = estimate.reach();
  }
  return rank;
}

std::vector<OverlapRank> Exchange(const OverlapSamples& own, Control& control) {
  if (own.both.empty()) return {};
  const OverlapRank mine = RankOf(own);
  const Figures figures = FiguresByIteration(own);
  std::vector<double> told;
  for (const auto& [figure, values] : figures) {
    told.insert(told.end(), {mine.figures.*figure, mine.reaches.*figure});
  }
  std::vector<OverlapRank> ranks;
  for (const std::vector<double>& all : control.Gather(told)) {
    auto next = all.begin();
    OverlapRank& rank = ranks.emplace_back();
    for (const auto& [figure, values] : figures) {
      rank.figures.*figure = *next++;
      rank.reaches.*figure = *next++;
    }
  }
  return ranks;
}

}  // namespace

OverlapResult RunOverlap(c10d::ProcessGroup& group, Control& control,
                         const Collective& collective, const Call& call,
                         const OverlapConfig& config,
                         const std::atomic<bool>* stop) {
  Runs runs(group, control, collective, call);
  OverlapResult result;
  result.call = DescribeCall(collective, call);
  std::function<void()> compute = config.compute;
  if (compute == nullptr) {
    result.gemm_size = config.gemm_size;
    result.gemms = CountProducts(runs, call, config);
    compute = Products(config.gemm_size, call.device, result.gemms);
  }
  OverlapSamples& own = result.own;
  for (int64_t i = -config.warmup; i < config.iterations; ++i) {
    result.stopped = AnyStopped(control, stop);
    if (result.stopped) break;
    const BesideTimes computed = runs.Run(false, compute);
    const BesideTimes communicated = runs.Run(true, nullptr);
    const BesideTimes both = runs.Run(true, compute);
    if (i < 0) continue;
    own.compute.push_back(computed.compute_end - computed.compute_begin);
    own.comm.push_back(communicated.comm_end);
    own.both.push_back(both.end);
    own.compute_begin.push_back(both.compute_begin);
    own.compute_end.push_back(both.compute_end);
    own.comm_end.push_back(both.comm_end);
    result.comm_ends_seen &= both.comm_end_seen;
  }
  result.ranks = Exchange(own, control);
  return result;
}

std::string FormatOverlap(const OverlapResult& result) {
  std::string text = Title(result.call) + " beside ";
  if (result.gemms > 0) {
    absl::StrAppendFormat(&text, "%d products of %d x %d float32 matrices",
                          result.gemms, result.gemm_size, result.gemm_size);
  } else {
    text += "a computation";
  }
  const size_t iterations = result.own.both.size();
  if (iterations == 0) return text + ": nothing was measured\n";
  absl::StrAppendFormat(
      &text,
      "; medians of %d iterations\n"
      "           alone ms        both ms  overlap by                          "
      "      slowed down by\n"
      "  rank  compute     comm               OSU  IMB-NBC      HTA    union "
      "of "
      "all   compute     comm\n",
      iterations);
  const bool intervals = static_cast<int64_t>(iterations) >= kFewestSamples;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    AppendLine(absl::StrCat(rank), result.ranks[rank].figures, text);
    if (intervals) AppendLine("+-", result.ranks[rank].reaches, text);
  }
  text += intervals ? "  +-: how far the 95 % interval of the median reaches\n"
                    : "  no 95 % intervals below 6 iterations\n";
  if (!result.comm_ends_seen) {
    text +=
        "  its end is seen only by waiting for it, after the computation: HTA, "
        "union and its slowdown\n  are those of the wait\n";
  }
  return text;
}

OverlapRecord RecordOf(const OverlapResult& result, int rank) {
  const OverlapSamples& samples = result.own;
  OverlapRecord record;
  record.rank = rank;
  record.collective = result.call.collective;
  record.bytes = result.call.bytes;
  record.dtype = result.call.dtype;
  record.op = result.call.op;
  record.in_place = result.call.in_place;
  record.gemm_size = std::max<int64_t>(result.gemm_size, 1);
  record.compute_seconds = samples.compute;
  record.comm_seconds = samples.comm;
  record.both_seconds = samples.both;
  record.both_compute_seconds = ComputeWithinBoth(samples);
  record.both_comm_seconds = samples.comm_end;
  return record;
}

}  // namespace rankwise::comm_bench
