#include "parallel/sharded/order/unit_order.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;

// Logs the calls: "+0" starts the gather of unit 0, "=0" waits for it, "-0"
// invalidates it, "r0" and "R0" start and finish its reduction.
class CallLog : public Units {
 public:
  explicit CallLog(size_t units) : gathered_(units, false) {}

  bool Gathered(size_t unit) const override { return gathered_[unit]; }
  void StartGather(size_t unit) override {
    EXPECT_FALSE(gathered_[unit]);
    gathered_[unit] = true;
    Write('+', unit);
  }
  void FinishGather(size_t unit) override { Write('=', unit); }
  void Invalidate(size_t unit) override {
    if (gathered_[unit]) Write('-', unit);
    gathered_[unit] = false;
  }
  void StartReduce(size_t unit) override { Write('r', unit); }
  void FinishReduce(size_t unit) override { Write('R', unit); }

  std::string Take() { return std::exchange(log_, ""); }

 private:
  void Write(char what, size_t unit) {
    if (!log_.empty()) log_ += ' ';
    log_ += what + std::to_string(unit);
  }

  std::vector<bool> gathered_;
  std::string log_;
};

// Three sections with one unit each.
struct Chain {
  explicit Chain(const UnitOrderConfig& config)
      : units(3), order(units, 3, config) {
    for (size_t unit = 0; unit < 3; ++unit) order.AddSection({unit});
  }
  std::vector<std::string> Forward(bool trains = true) {
    std::vector<std::string> sections;
    for (size_t section = 0; section < 3; ++section) {
      order.BeginForward(section);
      order.EndForward(section, trains);
      sections.push_back(units.Take());
    }
    return sections;
  }
  std::vector<std::string> Backward(bool reduces) {
    std::vector<std::string> sections;
    for (size_t section = 3; section-- > 0;) {
      order.BeginBackward(section);
      order.FinishUnit(section, reduces);
      sections.push_back(units.Take());
    }
    return sections;
  }

  CallLog units;
  UnitOrder order;
};

TEST(UnitOrderTest, Zero3GathersOneUnitAheadAndFreesAfterUse) {
  Chain chain({.zero = 3, .prefetch = 1});
  EXPECT_THAT(chain.Forward(), ElementsAre("+0 =0 +1 -0", "=1 +2 -1", "=2"));
  EXPECT_THAT(chain.Backward(true),
              ElementsAre("=2 +1 -2 r2", "=1 +0 -1 r1", "=0 -0 R2 r0"));
  chain.order.EndBackward();
  chain.order.EndStep(/*updates=*/true);
  EXPECT_EQ(chain.units.Take(), "R1 R0");
  EXPECT_EQ(chain.order.TakeMisses(0), 1);
  EXPECT_EQ(chain.order.TakeMisses(1), 0);
}

TEST(UnitOrderTest, TheEndOfBackwardFreesWhatWasGatheredForNothing) {
  Chain chain({.zero = 3, .prefetch = 1});
  chain.Forward();
  chain.order.BeginBackward(2);
  chain.order.FinishUnit(2, /*reduces=*/false);
  EXPECT_EQ(chain.units.Take(), "=2 +1 -2");
  chain.order.EndBackward();
  EXPECT_EQ(chain.units.Take(), "-1");
}

TEST(UnitOrderTest, AnEvaluationFreesTheLastUnitToo) {
  Chain chain({.zero = 3, .prefetch = 0});
  EXPECT_THAT(chain.Forward(/*trains=*/false),
              ElementsAre("+0 =0 -0", "+1 =1 -1", "+2 =2 -2"));
}

TEST(UnitOrderTest, InAPipelineBackwardNeedNotFollowForward) {
  Chain chain({.zero = 3, .prefetch = 1, .interleave_micro_batches = true});
  EXPECT_EQ(chain.Forward().back(), "=2 -2");
  EXPECT_EQ(chain.Backward(false).front(), "+2 =2 +1 -2");
}

TEST(UnitOrderTest, Zero1GathersOncePerUpdate) {
  Chain chain({.zero = 1, .prefetch = 2});
  EXPECT_THAT(chain.Forward(), ElementsAre("+0 =0 +1 +2", "=1", "=2"));
  EXPECT_THAT(chain.Backward(false), ElementsAre("=2", "=1", "=0"));
  EXPECT_THAT(chain.Forward(), ElementsAre("=0", "=1", "=2"));
  chain.order.EndStep(/*updates=*/true);
  EXPECT_EQ(chain.units.Take(), "-0 -1 -2");
}

TEST(UnitOrderTest, AUnitOfTwoSectionsStaysFromTheFirstUseToTheEnd) {
  CallLog units(2);
  UnitOrder order(units, 2, {.zero = 3, .prefetch = 1});
  order.AddSection({0});
  order.AddSection({1});
  order.AddSection({0});  // like a head tied to an embedding
  EXPECT_EQ(order.first_section(0), 0);
  EXPECT_EQ(order.last_section(0), 2);
  for (size_t section = 0; section < 3; ++section) {
    order.BeginForward(section);
    order.EndForward(section, /*trains=*/true);
  }
  EXPECT_EQ(units.Take(), "+0 =0 +1 =1 -1 =0");
  for (size_t section = 3; section-- > 0;) {
    order.BeginBackward(section);
    if (section == 2) continue;  // its gradient is incomplete
    order.FinishUnit(section == 1 ? 1 : 0, /*reduces=*/true);
  }
  EXPECT_EQ(units.Take(), "=0 +1 =1 -1 r1 =0 -0 r0");
}

}  // namespace
}  // namespace rankwise
