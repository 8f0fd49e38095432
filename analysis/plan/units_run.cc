#include <algorithm>
#include <utility>

#include "analysis/plan/step.h"

namespace rankwise::plan {
namespace {

constexpr double kNotThere = -1;
constexpr size_t kPrefetch = 1;

}  // namespace

UnitsRun::UnitsRun(std::vector<UnitSeconds> units, int zero, bool overlaps)
    : units_(std::move(units)),
      zero_(zero),
      overlaps_(overlaps),
      there_(units_.size(), kNotThere) {}

void UnitsRun::WaitUntil(double seconds) {
  exposed_ += std::max(0.0, seconds - now_);
  now_ = std::max(now_, seconds);
}

void UnitsRun::Gather(size_t unit) {
  if (there_[unit] != kNotThere) return;
  link_free_ = std::max(link_free_, now_) + units_[unit].gather;
  there_[unit] = link_free_;
  if (!overlaps_) WaitUntil(link_free_);
}

void UnitsRun::Need(size_t unit) {
  Gather(unit);
  WaitUntil(there_[unit]);
}

void UnitsRun::Forward() {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    Need(unit);
    if (unit + kPrefetch < units_.size()) Gather(unit + kPrefetch);
    now_ += units_[unit].forward;
    const bool is_last = unit + 1 == units_.size();
    if (zero_ == 3 && !is_last) there_[unit] = kNotThere;
  }
}

void UnitsRun::Backward(bool reduces) {
  for (size_t unit = units_.size(); unit-- > 0;) {
    Need(unit);
    if (unit >= kPrefetch) Gather(unit - kPrefetch);
    now_ += units_[unit].backward;
    if (zero_ == 3) there_[unit] = kNotThere;
    if (!reduces) continue;
    while (reducing_.size() > kPrefetch) {
      WaitUntil(reducing_.front());
      reducing_.erase(reducing_.begin());
    }
    link_free_ = std::max(link_free_, now_) + units_[unit].scatter;
    reducing_.push_back(link_free_);
    if (!overlaps_) WaitUntil(link_free_);
  }
}

void UnitsRun::Finish() {
  for (const double end : reducing_) WaitUntil(end);
  reducing_.clear();
  there_.assign(units_.size(), kNotThere);
}

}  // namespace rankwise::plan
