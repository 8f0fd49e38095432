// Computation alongside calls that run one after another on a link.
#ifndef RANKWISE_ANALYSIS_PLAN_LINK_RUN_H_
#define RANKWISE_ANALYSIS_PLAN_LINK_RUN_H_

#include <algorithm>

namespace rankwise::plan {

class LinkRun {
 public:
  // As Cluster::speed_during_communication.
  explicit LinkRun(double speed_during_communication)
      : speed_(speed_during_communication) {}

  void Compute(double seconds) {
    computed_ += seconds;
    const double in_flight = std::max(0.0, link_free_ - now_);
    const double meanwhile = in_flight * speed_;
    now_ += seconds < meanwhile ? seconds / speed_
                                : in_flight + seconds - meanwhile;
  }
  // Starts a call that takes `seconds`. Returns when it ends.
  double Start(double seconds) {
    link_free_ = std::max(link_free_, now_) + seconds;
    return link_free_;
  }
  void WaitUntil(double seconds) { now_ = std::max(now_, seconds); }
  void WaitForAll() { WaitUntil(link_free_); }

  double now() const { return now_; }
  // Returns the elapsed time minus the computation.
  double exposed() const { return now_ - computed_; }

 private:
  const double speed_;
  double now_ = 0, link_free_ = 0, computed_ = 0;
};

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_LINK_RUN_H_
