// The headers most often included by files that use LibTorch, compiled once (see precompiled.bzl): saves a third to a half of each
// file's compile time. Files with torch::nn use precompiled_nn.h. A file still includes the headers it uses. Measure before adding to
// this list: every file that loads the result pays for every header here.
#ifndef RANKWISE_THIRD_PARTY_LIBTORCH_PRECOMPILED_H_
#define RANKWISE_THIRD_PARTY_LIBTORCH_PRECOMPILED_H_

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/types.h>

#endif  // RANKWISE_THIRD_PARTY_LIBTORCH_PRECOMPILED_H_
