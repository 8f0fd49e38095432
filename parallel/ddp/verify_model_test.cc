#include "parallel/ddp/verify_model.h"

#include <functional>
#include <memory>
#include <string>

#include "ATen/Functions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/test_ranks.h"
#include "torch/types.h"

namespace rankwise {
namespace {

using testing::HasSubstr;

struct Net : torch::nn::Module {
  void Add(const std::string& name, torch::IntArrayRef shape,
           torch::Dtype dtype = torch::kFloat, bool trained = true) {
    register_parameter(name, at::zeros(shape, dtype), trained);
  }
};

// Builds a model per rank; all ranks must give the same refusal.
std::string Refusal(int world_size,
                    const std::function<void(Net&, int rank)>& build) {
  std::vector<std::string> messages(world_size);
  OnRanks(world_size, [&](Communicator& comm) {
    Net net;
    build(net, comm.rank());
    messages[comm.rank()] = VerifyModel(net, comm).ToString();
  });
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
  return messages[0];
}

TEST(VerifyModelTest, AcceptsEqualModelsWhateverTheirValues) {
  for (int world_size : {1, 2, 3}) {
    EXPECT_EQ(Refusal(world_size,
                      [](Net& net, int rank) {
                        net.Add("a", {2, 3});
                        net.register_buffer("b", at::full({2}, rank));
                      }),
              "OK");
  }
}

TEST(VerifyModelTest, NamesAShape) {
  EXPECT_THAT(Refusal(3,
                      [](Net& net, int rank) {
                        net.Add("a", {2});
                        net.Add("c", {rank + 1});
                      }),
              HasSubstr("parameter 'c' is Float [1] on rank 0 and Float [2] "
                        "on rank 1"))
      << "and of two ranks the first";
}

TEST(VerifyModelTest, NamesTheFirstParameterInOrder) {
  EXPECT_THAT(Refusal(3,
                      [](Net& net, int rank) {
                        net.Add("a", {rank == 2 ? 4 : 3, 5});
                        net.Add("b", {rank + 1});
                      }),
              HasSubstr("'a' is Float [3, 5] on rank 0 and Float [4, 5] on "
                        "rank 2"));
}

TEST(VerifyModelTest, NamesADtype) {
  EXPECT_THAT(Refusal(2,
                      [](Net& net, int rank) {
                        net.Add("a", {2},
                                rank == 0 ? torch::kFloat : torch::kDouble);
                      }),
              HasSubstr("'a' is Float [2] on rank 0 and Double [2] on rank 1"));
}

TEST(VerifyModelTest, NamesAName) {
  EXPECT_THAT(Refusal(2,
                      [](Net& net, int rank) {
                        net.Add("a", {2});
                        net.Add(rank == 0 ? "left" : "right", {2});
                      }),
              HasSubstr("tensor 2 is parameter 'left', Float [2] on rank 0 (of "
                        "2) and parameter 'right', Float [2] on rank 1 (of "
                        "2)"));
}

TEST(VerifyModelTest, NamesAParameterThatOneRankLacks) {
  EXPECT_THAT(Refusal(2,
                      [](Net& net, int rank) {
                        net.Add("a", {2});
                        if (rank == 0) net.Add("b", {7});
                      }),
              HasSubstr("tensor 2 is parameter 'b', Float [7] on rank 0 (of 2) "
                        "and missing on rank 1 (of 1)"));
  EXPECT_THAT(Refusal(2,
                      [](Net& net, int rank) {
                        if (rank == 1) net.Add("b", {7});
                      }),
              HasSubstr("missing on rank 0 (of 0) and parameter 'b'"));
}

TEST(VerifyModelTest, NamesAFrozenParameter) {
  EXPECT_THAT(
      Refusal(2, [](Net& net,
                    int rank) { net.Add("a", {2}, torch::kFloat, rank == 0); }),
      HasSubstr("Float [2] without gradient on rank 1"));
}

TEST(VerifyModelTest, NamesABuffer) {
  EXPECT_THAT(Refusal(2,
                      [](Net& net, int rank) {
                        net.Add("a", {2});
                        net.register_buffer("mean", at::zeros({3 + rank}));
                      }),
              HasSubstr("buffer 'mean' is Float [3] on rank 0 and Float [4]"));
}

TEST(VerifyModelTest, NamesAMemoryLayout) {
  EXPECT_THAT(
      Refusal(2,
              [](Net& net, int rank) {
                const auto format = rank == 0 ? at::MemoryFormat::Contiguous
                                              : at::MemoryFormat::ChannelsLast;
                net.register_parameter(
                    "kernel", at::zeros({2, 3, 4, 4}).contiguous(format));
              }),
      HasSubstr("'kernel' is Float [2, 3, 4, 4] on rank 0 and Float [2, 3, 4, "
                "4] with strides [48, 1, 12, 3] on rank 1"));
}

}  // namespace
}  // namespace rankwise
