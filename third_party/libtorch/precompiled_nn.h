// precompiled.h plus torch::nn.
#ifndef RANKWISE_THIRD_PARTY_LIBTORCH_PRECOMPILED_NN_H_
#define RANKWISE_THIRD_PARTY_LIBTORCH_PRECOMPILED_NN_H_

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#endif  // RANKWISE_THIRD_PARTY_LIBTORCH_PRECOMPILED_NN_H_
