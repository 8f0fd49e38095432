// What ranks tell each other beside what is measured.
#ifndef RANKWISE_PARALLEL_COMM_CONTROL_H_
#define RANKWISE_PARALLEL_COMM_CONTROL_H_

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "c10/util/intrusive_ptr.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

// Blocks in every call; called by one thread, in the same order on every rank.
// Throws what a failed collective throws.
class Control {
 public:
  virtual ~Control() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // Every rank's values, in order of rank. All give equally many.
  virtual std::vector<std::vector<double>> Gather(
      absl::Span<const double> values) = 0;
  virtual void Barrier() = 0;
  // One number to another rank and from it.
  virtual void Send(double value, int to) = 0;
  virtual double Receive(int from) = 0;
};

// Over the group's CPU backend (Gloo, also beside NCCL).
std::unique_ptr<Control> MakeGroupControl(
    c10::intrusive_ptr<c10d::ProcessGroup> group);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_CONTROL_H_
