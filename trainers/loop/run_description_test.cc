#include "trainers/loop/run_description.h"

#include <gtest/gtest.h>

#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {
namespace {

TEST(TrainingFlopsTest, AreDividedAmongDevicesReplicasAndRanks) {
  const ModelSpec spec = *MakeModelSpec({.name = "simple_cnn"});
  const double all = 3 * spec.flops();
  Worker worker;
  EXPECT_EQ(TrainingFlops(spec, worker, 1), all);
  worker.devices.assign(2, c10::kCPU);
  EXPECT_EQ(TrainingFlops(spec, worker, 1), all) << "slots of one CPU";
  EXPECT_EQ(TrainingFlops(spec, worker, 2), all / 2);
  worker.devices = {c10::Device("cuda:0"), c10::Device("cuda:1"),
                    c10::Device("cuda:0")};
  EXPECT_EQ(TrainingFlops(spec, worker, 1), all / 2);
  worker.devices.clear();
  worker.layout = *LayOutRanks({{"pp", 4}}, 4);
  EXPECT_EQ(TrainingFlops(spec, worker, 1), all / 4);
}

}  // namespace
}  // namespace rankwise
