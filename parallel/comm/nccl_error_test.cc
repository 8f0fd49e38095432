#include "parallel/comm/nccl_error.h"

#include <stdexcept>
#include <string>

#include "gtest/gtest.h"
#include "parallel/comm/plain_error.h"

namespace rankwise {
namespace {

// As C10D_NCCL_CHECK writes it.
std::string Thrown(const std::string& what, const std::string& details) {
  return "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93"
         ", " +
         what + ", NCCL version 2.28.9\n" + details;
}

TEST(NcclErrorTest, KeepsNcclsOwnWords) {
  EXPECT_EQ(
      PlainNcclError(Thrown(
          "invalid usage (run with NCCL_DEBUG=WARN for details)",
          "ncclInvalidUsage: This usually reflects invalid usage of NCCL "
          "library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 "
          "both on CUDA device 1b000")),
      "NCCL 2.28.9: invalid usage: "
      "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000; "
      "two ranks are on one GPU: start fewer ranks, or let each see its own "
      "(CUDA_VISIBLE_DEVICES)");
}

TEST(NcclErrorTest, SaysWhatToDo) {
  EXPECT_EQ(
      PlainNcclError(Thrown(
          "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
          "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:"
          "\nCuda failure 2 'out of memory'")),
      "NCCL 2.28.9: unhandled cuda error: Cuda failure 2 'out of memory'; the "
      "GPU has no memory left for NCCL's buffers: use a smaller batch, or see "
      "in nvidia-smi who else uses the GPU");
  EXPECT_EQ(PlainNcclError(
                "NCCL error: remote process exited or there was a network "
                "error, NCCL version 2.28.9\nncclRemoteError: A call failed "
                "possibly due to a network error or a remote process exiting "
                "prematurely.\nLast error:\n"),
            "NCCL 2.28.9: remote process exited or there was a network error: "
            "A call failed possibly due to a network error or a remote process "
            "exiting prematurely; see what the other ranks printed last");
}

TEST(NcclErrorTest, ReachesPlainMessages) {
  EXPECT_EQ(PlainMessage(std::runtime_error(
                Thrown("unhandled cuda error (run with NCCL_DEBUG=INFO for "
                       "details)",
                       "ncclUnhandledCudaError: Call to CUDA function failed.\n"
                       "Last error:\n"))),
            "NCCL 2.28.9: unhandled cuda error: Call to CUDA function failed; "
            "NCCL_DEBUG=INFO tells more");
}

TEST(NcclErrorTest, LeavesOtherTextsAlone) {
  EXPECT_EQ(PlainNcclError("Connection closed by peer"),
            "Connection closed by peer");
  EXPECT_EQ(PlainNcclError(""), "");
}

}  // namespace
}  // namespace rankwise
