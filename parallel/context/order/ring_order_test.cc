#include "parallel/context/order/ring_order.h"

#include <string>

#include "gtest/gtest.h"

namespace rankwise {
namespace {

class CallLog : public RingBackwardRank {
 public:
  void StartKeys(int step) override { Write("send", step); }
  void TakeKeys() override { log += "take "; }
  void Attend(int step) override { Write("attend", step); }
  void AddGradients(int step) override { Write("add", step); }
  void StartGradients(int step) override { Write("send_grad", step); }
  void TakeGradients() override { log += "take_grad "; }

  std::string log;

 private:
  void Write(const char* what, int step) {
    log += what + std::to_string(step) + ' ';
  }
};

TEST(RingOrderTest, KeysGoOnWhileTheirBlockIsAttendedTo) {
  CallLog rank;
  RunRingForward(3, rank);
  EXPECT_EQ(rank.log, "send0 attend0 take send1 attend1 take attend2 ");
}

TEST(RingOrderTest, GradientsFollowAStepBehindAndReachTheirOwner) {
  CallLog rank;
  RunRingBackward(2, rank);
  EXPECT_EQ(rank.log,
            "send0 attend0 add0 send_grad0 take "
            "attend1 take_grad add1 send_grad1 take_grad ");
}

TEST(RingOrderTest, OneRankSendsNoKeys) {
  CallLog rank;
  RunRingForward(1, rank);
  EXPECT_EQ(rank.log, "attend0 ");
}

}  // namespace
}  // namespace rankwise
