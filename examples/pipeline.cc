// A torch::nn::Sequential trained as a pipeline of two ranks: `../bazelw run
// //:pipeline`.
#include <torch/torch.h>

#include <cstdio>

#include "parallel/comm/communicator.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/rank_env.h"
#include "parallel/pipeline/engine/sequential.h"
#include "third_party/absl/status_macros.h"

constexpr int kMicroBatches = 4, kMicroBatchSize = 16;

torch::Tensor Loss(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

absl::Status Train() {
  ASSIGN_OR_RETURN(const rankwise::RankEnv env, rankwise::ReadRankEnv());
  // Otherwise every rank uses all cores.
  torch::set_num_threads(rankwise::ThreadsPerRank(0, env));
  ASSIGN_OR_RETURN(const auto comm, rankwise::Communicator::Create(env, {}));
  torch::manual_seed(1);  // the same layers and examples on every rank
  torch::nn::Sequential layers(torch::nn::Linear(2, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 2));
  ASSIGN_OR_RETURN(
      const auto pipeline,
      rankwise::SequentialPipeline::Create(
          layers, torch::zeros({kMicroBatchSize, 2}), comm->world(),
          {.schedule = "1f1b", .micro_batches = kMicroBatches}));
  torch::optim::SGD sgd(pipeline->parameters(), /*lr=*/0.5);
  try {
    for (int step = 0; step < 300; ++step) {
      const torch::Tensor x =
          torch::randn({kMicroBatches * kMicroBatchSize, 2});
      const torch::Tensor is_inside = (x.square().sum(1) < 1).to(torch::kLong);
      const torch::Tensor loss = pipeline->Step(x, is_inside, Loss);
      sgd.step();
      sgd.zero_grad();
      if (env.rank == 0 && step % 50 == 49)
        std::printf("step %d, loss %.4f\n", step + 1, loss.item<double>());
    }
  } catch (const std::exception& error) {
    return comm->ExplainFailure("training", error);
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  rankwise::LaunchConfig launch;
  launch.nproc = 2;
  if (!rankwise::InsideLauncher())
    return rankwise::LaunchRanks(launch, argc, argv);
  rankwise::PrepareRankProcess();
  const absl::Status status = Train();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
