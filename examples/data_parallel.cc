// A user's torch::nn::Module, made data-parallel. `../bazelw run
// //:data_parallel` starts two ranks; torchrun --no-python and srun work, too.
// Lines marked "rankwise" are the additions to a program for one process.
#include <torch/torch.h>

#include <cstdio>

#include "parallel/comm/communicator.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/rank_env.h"
#include "third_party/absl/status_macros.h"

struct Classifier : torch::nn::Module {
  Classifier() {
    hidden = register_module("hidden", torch::nn::Linear(2, 32));
    output = register_module("output", torch::nn::Linear(32, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return output->forward(torch::tanh(hidden->forward(x)));
  }
  torch::nn::Linear hidden = nullptr, output = nullptr;
};

absl::Status Train() {
  ASSIGN_OR_RETURN(const rankwise::RankEnv env,
                   rankwise::ReadRankEnv());  // rankwise
  // Otherwise every rank uses all cores.
  torch::set_num_threads(rankwise::ThreadsPerRank(0, env));  // rankwise
  ASSIGN_OR_RETURN(const auto comm,
                   rankwise::Communicator::Create(env, {}));  // rankwise
  Classifier model;
  ASSIGN_OR_RETURN(const auto ddp, rankwise::DistributedDataParallel::Create(
                                       model, comm->world(), {}));  // rankwise
  torch::optim::SGD sgd(model.parameters(), /*lr=*/0.5);
  torch::manual_seed(1 + env.rank);  // different examples on every rank
  try {
    for (int step = 0; step < 200; ++step) {
      const torch::Tensor x = torch::randn({64, 2});
      const torch::Tensor is_inside = (x.square().sum(1) < 1).to(torch::kLong);
      ddp->BeforeForward();  // rankwise
      torch::Tensor loss =
          torch::nn::functional::cross_entropy(model.forward(x), is_inside);
      ddp->BeforeBackward({loss});  // rankwise
      loss.backward();
      ddp->AfterBackward();  // rankwise
      sgd.step();
      // Not sgd.zero_grad(): gradients are views of the communicated buckets.
      for (torch::Tensor& parameter : model.parameters())
        parameter.mutable_grad().zero_();
      if (env.rank == 0 && step % 50 == 49)
        std::printf("step %d, loss %.4f\n", step + 1, loss.item<double>());
    }
  } catch (const std::exception& error) {
    return comm->ExplainFailure("training", error);  // rankwise
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  rankwise::LaunchConfig launch;  // rankwise
  launch.nproc = 2;               // rankwise
  if (!rankwise::InsideLauncher())
    return rankwise::LaunchRanks(launch, argc, argv);  // rankwise
  rankwise::PrepareRankProcess();                      // rankwise
  const absl::Status status = Train();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
