#include "parallel/comm/diagnosis/plain_error.h"

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ops/ones.h"
#include "c10/util/Exception.h"
#include "gloo/common/error.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"

namespace rankwise {
namespace {

TEST(PlainErrorTest, DropsTheTraceOfTorchErrors) {
  try {
    TORCH_CHECK(false, "shapes differ");
  } catch (const std::exception& error) {
    EXPECT_EQ(PlainMessage(error), "shapes differ");
  }
}

TEST(PlainErrorTest, DropsSourceLocations) {
  EXPECT_EQ(PlainMessage(std::runtime_error(
                "[/build/gloo/tcp/pair.cc:537] Connection closed by peer "
                "[127.0.0.1]:4711")),
            "Connection closed by peer [127.0.0.1]:4711");
  EXPECT_EQ(PlainMessage(std::runtime_error("[4, 5] is no shape")),
            "[4, 5] is no shape");
}

TEST(PlainErrorTest, DropsTracesInTheTextAndJoinsLines) {
  EXPECT_EQ(PlainMessage(std::runtime_error(
                "one\ntwo\nException raised from f at a.cpp:3\nframe #0: f")),
            "one two");
}

TEST(PlainErrorTest, CommunicationIsKnownByItsTypes) {
  const c10::SourceLocation here = {__func__, __FILE__, __LINE__};
  EXPECT_TRUE(IsOfCommunication(c10::DistBackendError(here, "x")));
  EXPECT_TRUE(IsOfCommunication(c10::DistNetworkError(here, "x")));
  EXPECT_TRUE(IsOfCommunication(gloo::IoException("x")));
  EXPECT_FALSE(IsOfCommunication(std::runtime_error(
      "cannot read data: nccl, connection closed, timed out")));
  EXPECT_FALSE(IsOfCommunication(c10::Error(here, "Connection refused")));
}

// Thrown by c10d's Gloo, which is not built from this repository's headers.
TEST(PlainErrorTest, GloosOwnExceptionsAreKnown) {
  std::vector<at::Tensor> tensors = {at::ones({1})};
  const c10::intrusive_ptr<c10d::Store> store =
      c10::make_intrusive<c10d::HashStore>();
  auto options = c10d::ProcessGroupGloo::Options::create(
      /*timeout=*/std::chrono::milliseconds(50));
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      c10d::ProcessGroupGloo gloo(store, rank, 2, options);
      if (rank == 1) {
        store->wait({"done"});
        return;
      }
      try {
        gloo.allreduce(tensors)->wait();
        ADD_FAILURE() << "rank 1 did not take part";
      } catch (const std::exception& error) {
        EXPECT_TRUE(IsOfCommunication(error)) << error.what();
      }
      store->set("done", "");
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(PlainErrorTest, AMismatchIsKnown) {
  const c10::SourceLocation here = {__func__, __FILE__, __LINE__};
  const std::string words = "Detected mismatch between collectives on ranks";
  EXPECT_TRUE(IsMismatch(c10::Error(here, words)));
  EXPECT_FALSE(IsMismatch(std::runtime_error(words)));
  EXPECT_FALSE(IsMismatch(c10::Error(here, "tensors must be contiguous")));
}

std::string PlainNcclError(const std::string& text) {
  return PlainMessage(std::runtime_error(text));
}

// The format of C10D_NCCL_CHECK.
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
      "in nvidia-smi which other processes use the GPU");
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
            "set NCCL_DEBUG=INFO for details");
}

TEST(NcclErrorTest, LeavesOtherTextsAlone) {
  EXPECT_EQ(PlainNcclError("Connection closed by peer"),
            "Connection closed by peer");
  EXPECT_EQ(PlainNcclError(""), "");
}

}  // namespace
}  // namespace rankwise
