// A group of communicating ranks: all ranks of the job, or those along one axis
// of a mesh. Engines run on a group.
#ifndef RANKWISE_PARALLEL_COMM_GROUP_H_
#define RANKWISE_PARALLEL_COMM_GROUP_H_

#include <string>
#include <utility>
#include <vector>

#include "c10/util/intrusive_ptr.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

class Communicator;

// Cheap to copy. Must not outlive its communicator.
class Group {
 public:
  // This process alone: one rank, without peers or a process group.
  Group() : ranks_({0}) {}
  Group(std::string name, std::vector<int> ranks, int place,
        c10::intrusive_ptr<c10d::ProcessGroup> process_group,
        Communicator* communicator)
      : name_(std::move(name)),
        ranks_(std::move(ranks)),
        place_(place),
        process_group_(std::move(process_group)),
        communicator_(communicator) {}

  // Name in ExplainFailure's messages, such as the axis: "dp".
  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // This rank's place in the group: its rank in process_group().
  int place() const { return place_; }
  // Ranks of the job, by place.
  const std::vector<int>& ranks() const { return ranks_; }
  // nullptr for an axis of one rank in a job of several.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const {
    return process_group_;
  }
  // Explains failures in the group. nullptr for a process without peers.
  Communicator* communicator() const { return communicator_; }

 private:
  std::string name_;
  std::vector<int> ranks_;
  int place_ = 0;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  Communicator* communicator_ = nullptr;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_GROUP_H_
