#include "trainers/run_record.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/comm/comm_flags.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/run_record.h"

namespace rankwise {

absl::StatusOr<RunRecord> DescribeRun(const Worker& worker) {
  RunningRank rank;
  rank.binary = worker.trainer;
  rank.flags = FlagsOf("trainers/");
  rank.env = worker.env;
  rank.devices = worker.devices;
  if (rank.devices.empty()) rank.devices = {worker.device};
  rank.threads = worker.threads;
  rank.comm = worker.comm;
  return DescribeRun(rank);
}

ExampleUnit UnitOf(const ModelSpec& model) {
  const std::vector<int64_t>& output = model.layers.back().output_shape;
  if (model.num_classes > 0 && output.size() == 2)
    return {"sequence", output[0]};
  return {model.example_shape.size() == 3 ? "image" : "", 0};
}

std::string DescribeBackend(const Worker& worker) {
  if (worker.comm == nullptr) return "";
  return absl::StrCat(", ", std::string(worker.comm->backend()));
}

}  // namespace rankwise
