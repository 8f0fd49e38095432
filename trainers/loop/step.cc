#include "trainers/loop/step.h"

#include <new>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "c10/util/Exception.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/diagnosis/plain_error.h"

namespace rankwise {
namespace {

// Compares text, because the type is lost: c10's CPU allocator throws a plain
// c10::Error, and a loader returns a Status.
bool SaysOutOfMemory(absl::string_view message) {
  return absl::StrContains(message,
                           "DefaultCPUAllocator: can't allocate memory") ||
         absl::StrContains(message, "DefaultCPUAllocator: not enough memory") ||
         absl::StrContains(message, std::bad_alloc().what());
}

absl::Status OutOfMemory(absl::string_view attempted, absl::string_view message,
                         const Worker& worker) {
  return absl::ResourceExhaustedError(absl::StrCat(
      attempted, " ran out of memory on ", worker.device.str(), ": ", message,
      "\nTo use less memory: a smaller --batch_size (with --accumulate for the "
      "same global batch), --precision=bf16",
      worker.trainer == "fsdp"
          ? ", more ranks"
          : ", or the trainer fsdp (--zero=3), which shards parameters, "
            "gradients and optimizer state"));
}

}  // namespace

absl::Status ExplainTrainingFailure(absl::string_view attempted,
                                    const std::exception& error,
                                    const Worker& worker) {
  const std::string message = PlainMessage(error);
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      SaysOutOfMemory(error.what())) {
    return OutOfMemory(attempted, message, worker);
  }
  if (worker.comm != nullptr && worker.env.world_size > 1)
    return worker.comm->ExplainFailure(attempted, error);
  return absl::InternalError(absl::StrCat(attempted, " failed: ", message));
}

absl::Status ExplainLoadingFailure(const absl::Status& status,
                                   const Worker& worker) {
  const absl::string_view message = status.message();
  return SaysOutOfMemory(message) ? OutOfMemory("loading data", message, worker)
                                  : status;
}

}  // namespace rankwise
