// What files that use LibTorch include most, compiled once (see precompiled.bzl): it takes a third to a half of the time off each of
// them. Files with torch::nn use precompiled_nn.h. A file still includes what it uses. Measure before adding to this list: every header
// here is paid for by each file that loads the result.
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
