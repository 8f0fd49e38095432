#include "trainers/resume/restart.h"

#include <ATen/ops/tensor.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parallel/comm/communicator.h"
#include "third_party/absl/status_macros.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/resume/agreement.h"

namespace rankwise {

absl::StatusOr<int64_t> AgreeOnRestart(const Worker& worker) {
  if (worker.comm == nullptr) return worker.env.restart_count;
  at::Tensor count = at::tensor({worker.env.restart_count}, at::kLong);
  count = count.to(worker.device);
  RETURN_IF_ERROR(worker.comm->AllReduce(count, ReduceOp::kMax));
  return count.item<int64_t>();
}

absl::Status SetAsideOldCheckpoints(const CheckpointConfig& config,
                                    const Worker& worker) {
  if (worker.env.max_restarts == 0 || worker.env.launcher == "nproc")
    return absl::OkStatus();
  return AgreeOnSuccess(
      "setting older checkpoints aside",
      worker.is_first() ? SetAsideCheckpoints(config.dir) : absl::OkStatus(),
      worker);
}

RestartRecord RestartNow(const RankEnv& env, int64_t restart,
                         const Progress& progress) {
  RestartRecord record;
  record.rank = env.rank;
  record.restart = restart;
  record.cause = env.restart_cause;
  record.step = progress.step;
  record.kept_unix_seconds = progress.step > 0 ? progress.saved_unix_seconds
                                               : env.started_unix_seconds;
  record.failed_unix_seconds = env.failed_unix_seconds;
  record.training_unix_seconds =
      absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  return record;
}

std::string DescribeRestart(const RestartRecord& record) {
  std::string text = absl::StrCat("restart ", record.restart);
  if (!record.cause.empty()) absl::StrAppend(&text, " after ", record.cause);
  const double lost = record.training_unix_seconds - record.kept_unix_seconds;
  if (!std::isnan(lost)) absl::StrAppendFormat(&text, "; %.1f s lost", lost);
  return text;
}

}  // namespace rankwise
