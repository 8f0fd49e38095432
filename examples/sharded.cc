// A user's torch::nn::Module whose parameters, gradients and optimizer state
// are divided among ranks (ZeRO 3): `../bazelw run //:sharded`.
#include <torch/torch.h>

#include <cstdio>

#include "parallel/comm/communicator.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/rank_env.h"
#include "parallel/sharded/fully_sharded.h"
#include "third_party/absl/status_macros.h"

struct Classifier : torch::nn::Module {
  Classifier() {
    hidden = register_module("hidden", torch::nn::Linear(2, 32));
    output = register_module("output", torch::nn::Linear(32, 2));
  }
  torch::nn::Linear hidden = nullptr, output = nullptr;
};

absl::Status Train() {
  ASSIGN_OR_RETURN(const rankwise::RankEnv env, rankwise::ReadRankEnv());
  // Otherwise every rank uses all cores.
  torch::set_num_threads(rankwise::ThreadsPerRank(0, env));
  ASSIGN_OR_RETURN(const auto comm, rankwise::Communicator::Create(env, {}));
  Classifier model;
  ASSIGN_OR_RETURN(const auto groups,
                   rankwise::DivideLine(comm->world(), env.world_size));
  ASSIGN_OR_RETURN(const auto sharded,
                   rankwise::FullyShardedDataParallel::Create(
                       model,
                       {{"hidden", model.hidden->parameters()},
                        {"output", model.output->parameters()}},
                       comm->world(), groups, {.stage = 3}));
  // The sections of forward; each has its parameters gathered while it runs.
  sharded->AddSection(model.hidden->parameters());
  sharded->AddSection(model.output->parameters());
  std::vector<torch::Tensor> owned;  // this rank's rows
  for (const auto& [name, rows] : sharded->Owned()) owned.push_back(rows);
  torch::optim::SGD sgd(owned, /*lr=*/0.5);
  torch::manual_seed(1 + env.rank);  // different examples on every rank
  try {
    for (int step = 0; step < 200; ++step) {
      const torch::Tensor x = torch::randn({64, 2});
      const torch::Tensor is_inside = (x.square().sum(1) < 1).to(torch::kLong);
      sharded->BeforeForward();
      const torch::Tensor hidden = sharded->Run(
          0, [&](const auto& x) { return torch::tanh(model.hidden(x)); }, x);
      const torch::Tensor logits = sharded->Run(
          1, [&](const auto& x) { return model.output(x); }, hidden);
      const torch::Tensor loss =
          torch::nn::functional::cross_entropy(logits, is_inside);
      sharded->BeforeBackward({loss});
      loss.backward();
      sharded->AfterBackward();
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
