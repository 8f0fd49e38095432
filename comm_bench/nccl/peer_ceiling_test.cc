#include "comm_bench/nccl/peer_ceiling.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "gtest/gtest.h"
#include "parallel/comm/control.h"

namespace rankwise::comm_bench {
namespace {

using Copies = std::vector<micro::PeerCopy>;

TEST(PeerCeilingTest, TheSlowestPairIsTheCeiling) {
  const PeerCeiling ceiling = DescribePeerCopies(
      Copies{{0, 1, 300e9, true}, {1, 0, 45.2e9, false}, {0, 2, 200e9, true}});
  EXPECT_EQ(ceiling.bytes_per_second, 45.2e9);
  EXPECT_EQ(ceiling.text,
            "45.2 GB/s from GPU 1 to 0, the slowest of 3 pairs, through the "
            "host's memory");
}

TEST(PeerCeilingTest, SaysWhyThereIsNone) {
  const PeerCeiling failed =
      DescribePeerCopies(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(failed.bytes_per_second, 0);
  EXPECT_EQ(failed.text, "left out: no memory");
}

// Rank 1 of two, which receives rank 0's measurement.
class SecondRank : public Control {
 public:
  int rank() const override { return 1; }
  int world_size() const override { return 2; }
  std::vector<std::vector<double>> Gather(
      absl::Span<const double> values) override {
    return {{45e9}, {values.begin(), values.end()}};
  }
  std::vector<double> Max(absl::Span<const double>) override { return {45e9}; }
  std::vector<double> Sum(absl::Span<const double>) override { return {45e9}; }
  void Barrier() override {}
  void Send(double, int) override {}
  double Receive(int) override { return 0; }
};

TEST(PeerCeilingTest, ARankThatSeesNoPairTakesPart) {
  SecondRank control;
  const PeerCeiling ceiling = MeasurePeerCeiling(
      control, c10::Device(c10::kCUDA, 0), /*one_host=*/true);
  EXPECT_EQ(ceiling.bytes_per_second, 45e9);
}

}  // namespace
}  // namespace rankwise::comm_bench
