// Exchanges small numbers and strings between ranks on the host.
#ifndef RANKWISE_PARALLEL_COMM_CONTROL_H_
#define RANKWISE_PARALLEL_COMM_CONTROL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "c10/util/intrusive_ptr.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

class Communicator;

// Every call blocks. Call from one thread, in the same order on every rank.
// Throws the exception of a failed collective.
class Control {
 public:
  virtual ~Control() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // Returns every rank's values, in rank order. All ranks pass equally many.
  virtual std::vector<std::vector<double>> Gather(
      absl::Span<const double> values) = 0;
  // Return the element-wise maximum and sum over the ranks. All ranks pass
  // equally many values; a rank's sent bytes do not grow with the number of
  // ranks.
  virtual std::vector<double> Max(absl::Span<const double> values) = 0;
  virtual std::vector<double> Sum(absl::Span<const double> values) = 0;
  virtual void Barrier() = 0;
  // Send one number to another rank and receive one from it.
  virtual void Send(double value, int to) = 0;
  virtual double Receive(int from) = 0;
};

// Runs over the group's CPU backend (under NCCL, Gloo).
std::unique_ptr<Control> MakeGroupControl(
    c10::intrusive_ptr<c10d::ProcessGroup> group);

// Returns every rank's `text` in rank order on rank 0, and nothing on the other
// ranks. Collective. Without a communicator or peers, returns `text` alone.
// Throws the exception of a failed message.
std::vector<std::string> GatherText(Communicator* comm,
                                    const std::string& text);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_CONTROL_H_
