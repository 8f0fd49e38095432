// Training with parameter servers: the first ranks hold the parameters, divided
// by rows, and the optimizer state; the others compute gradients, push them to
// the servers and pull the new parameters. Compare with ddp.cc, whose ranks all
// do the same work and are all needed.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/diagnosis/peers.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/parameter_server/client.h"
#include "parallel/parameter_server/server.h"
#include "records/record.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/loop/training_run.h"
#include "trainers/main.h"
#include "trainers/parameter_server_flags.h"

namespace rankwise {
namespace {

// This rank's role in the job.
struct Role {
  ServerJobConfig job;
  ServerRanks ranks;
  std::unique_ptr<Communicator> comm;  // of the servers, or of this worker
  Worker worker;

  // Returns whether the workers push after this step.
  bool PushesAfter(const StepInput& input) const {
    return input.step % job.local_steps == 0 || input.ends_epoch;
  }
};

absl::StatusOr<Role> TakeRole(const Worker& worker) {
  if (worker.comm->runs_on_device()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--backend=auto chooses ", std::string(worker.comm->backend()),
        " here, which ends all ranks when one dies; give --backend=gloo"));
  }
  Role role;
  const int rank = worker.env.rank, servers = ServersFromFlags();
  const int workers = worker.env.world_size - servers;
  role.job = ServerJobConfigFromFlags(workers);
  ASSIGN_OR_RETURN(role.ranks, ConnectServers(*worker.comm, servers));
  // A server may wait a full collective timeout for a worker before it gives it
  // up, while the other servers wait for this server.
  if (servers > 1 && rank < servers) {
    role.ranks.own.process_group()->getBackend(c10::kCPU)->setTimeout(
        absl::ToChronoMilliseconds(2 * role.job.server.collective_timeout));
  }
  role.comm = worker.comm->Within(role.ranks.own);
  role.worker = worker;
  role.worker.comm = role.comm.get();
  role.worker.mesh = nullptr;
  role.worker.readers = workers;
  role.worker.reader = std::max(rank - servers, -1);
  if (rank < servers) role.worker.device = c10::kCPU;
  const int own = role.ranks.own.size();
  ASSIGN_OR_RETURN(role.worker.layout, LayOutRanks({{"dp", own}}, own));
  return role;
}

ShardLayout LayoutOf(const Model& model, const ServerJobConfig& job) {
  return ShardLayout(ModelParameters(model), job.servers,
                     job.server.bucket_bytes);
}

// Returns a server's rows, for the optimizer and the checkpoints.
ShardedState StateOf(const ParameterServer& server, const ShardLayout& layout,
                     const Group& servers, NamedTensors& owned) {
  ShardedState state;
  state.group = servers;
  for (size_t i = 0; i < layout.parameters().size(); ++i) {
    const auto& [name, whole, sparse] = layout.parameters()[i];
    const auto& [rows, begin] = server.rows()[i];
    if (rows.defined()) owned.emplace_back(name, rows);
    state.shards[name] = {
        .rows = rows.defined() ? rows : whole.detach().narrow(0, 0, 0),
        .begin = begin,
        .whole_rows = whole.size(0)};
  }
  return state;
}

std::string Describe(const ServerJobConfig& job, int workers) {
  return absl::StrCat(
      Counted(job.servers, "server"), ", ", Counted(workers, "worker"), ", ",
      job.consistency,
      job.local_steps == 1
          ? ""
          : absl::StrCat("; each worker takes ", job.local_steps,
                         " steps with an optimizer of its own; the optimizer "
                         "above is that of the servers"));
}

// Servers train on no examples of their own; `seconds` as in ServedStep.
void CompleteServed(std::optional<double> seconds, StepRecord& record) {
  record.examples = 0;
  if (!seconds.has_value()) return;
  record.step_seconds = record.backward_seconds = *seconds;
  record.data_wait_seconds = 0;
  record.exposed_comm_seconds = *seconds;
  record.exposed_by_axis_seconds = {{"dp", *seconds}};
}

absl::Status Serve(const TrainConfig& config, Role& role) {
  const Worker& worker = role.worker;
  const bool is_local = role.job.local_steps > 1;
  TrainConfig own = config;
  if (is_local) own.optimizer = role.job.outer;
  own.checkpoint.multiple_of_steps = role.job.local_steps;
  ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                   TrainingRun::Create(own, worker));
  Model& model = run->model();
  const ShardLayout layout = LayoutOf(model, role.job);
  ParameterServer server(role.job.server, layout, worker.env.rank,
                         role.ranks.links, ModelBuffers(model));
  NamedTensors owned;
  const ShardedState state = StateOf(server, layout, role.ranks.own, owned);
  RETURN_IF_ERROR(run->Start(owned, state));
  run->Say(Describe(role.job, worker.readers));
  const Progress& start = run->progress();
  server.Serve(
      [&run](double learning_rate) { run->optimizer().Step(learning_rate); },
      [&worker](int rank, int others) {
        if (!worker.is_first()) return;
        const std::string outcome =
            others > 0 ? absl::StrCat("training continues with ",
                                      Counted(others, "worker"))
                       : "no other worker is still training; the updates that "
                         "it had not yet pushed are lost";
        std::fprintf(stderr,
                     "warning: rank %d, a worker, no longer answers; %s\n",
                     rank, outcome.c_str());
      },
      {.step = start.step, .epoch = start.epoch, .position = start.position});

  const StepFunction step =
      [&](const StepInput& input) -> absl::StatusOr<StepOutcome> {
    input.clock.Begin(Phase::kBackward);
    ServedStep served = server.FinishStep();
    for (UpdateRecord& update : served.updates) {
      update.rank = worker.env.rank;
      update.step = input.step;
      RETURN_IF_ERROR(run->Write(update));
    }
    return StepOutcome{.loss = torch::tensor(served.loss),
                       .loss_rank = served.non_finite_worker < 0
                                        ? StepOutcome::kNoRank
                                        : served.non_finite_worker,
                       .exposed_comm_seconds = served.wait_seconds,
                       .complete =
                           [seconds = served.seconds](StepRecord& record) {
                             CompleteServed(seconds, record);
                           },
                       .examples_of_all = served.examples};
  };
  const auto evaluate = [&](TrainingData& data, int64_t epoch) {
    server.GatherParameters(role.ranks.own);
    return Evaluate(run->objective(), data, worker, epoch);
  };
  const absl::Status trained = run->Train(step, evaluate);
  // If the training diverged, workers whose connections broke would fail before
  // this rank has printed the reason.
  if (trained.ok() || absl::IsCancelled(trained) || absl::IsAborted(trained))
    server.Finish();
  return trained;
}

// Returns, by layer, the last bucket with a parameter that its forward uses.
std::vector<size_t> BucketsByLayer(const Model& model,
                                   const ShardLayout& layout) {
  std::vector<size_t> last(model.num_layers(), 0);
  for (size_t layer = 0; layer < last.size(); ++layer) {
    for (const auto& [name, used] : model.ParametersOf(layer)) {
      for (size_t i = 0; i < layout.parameters().size(); ++i) {
        if (layout.parameters()[i].tensor.is_same(used))
          last[layer] = std::max(last[layer], layout.BucketOf(i));
      }
    }
  }
  return last;
}

// A worker's steps: computes gradients and pushes updates.
class WorkerSteps {
 public:
  WorkerSteps(const Role& role, TrainingRun& run)
      : role_(role),
        run_(run),
        client_(LayoutOf(run.model(), role.job), role.ranks.links,
                ModelBuffers(run.model())) {}

  // Pulls the parameters, and continues training at the servers' step.
  void Begin() {
    const Reply begin = client_.Begin();
    run_.ContinueFrom(
        {.step = begin.step, .epoch = begin.epoch, .position = begin.position});
    const std::vector<size_t> bucket_of =
        BucketsByLayer(run_.model(), LayoutOf(run_.model(), role_.job));
    // The first layers compute while the last layers' parameters arrive.
    run_.model().SetRunLayer(
        [this, bucket_of](size_t layer, const Model::LayerForward& forward,
                          const torch::Tensor& x) {
          client_.Await(bucket_of[layer]);
          return forward(x);
        },
        /*collective=*/false);
  }

  absl::StatusOr<StepOutcome> Step(const StepInput& input) {
    const double start = SteadySeconds();
    const torch::Tensor loss = ForwardAndBackward(input);
    const ParameterClient::Push done = {input.learning_rate,
                                        loss.item<double>(),
                                        CountExamples(input.micro_batches)};
    double waited = client_.TakeWaitSeconds();
    if (role_.worker.env.rank == role_.job.slow_rank) SlowDown(start, waited);
    if (client_.ended()) return EndedByServers();
    if (role_.job.local_steps > 1) {
      input.clock.Begin(Phase::kOptimizer);
      run_.optimizer().Step(input.learning_rate);
      input.clock.Begin(Phase::kBackward);
    }
    role_.PushesAfter(input) ? Push(done) : client_.EndStep(done);
    input.clock.Begin(Phase::kOptimizer);
    run_.model().zero_grad();
    waited += client_.TakeWaitSeconds();
    return StepOutcome{.loss = loss, .exposed_comm_seconds = waited};
  }

  absl::Status Finish() {
    client_.Finish();
    return absl::OkStatus();
  }

 private:
  absl::Status EndedByServers() const {
    const auto store = role_.worker.comm->job().process_group()->getStore();
    return RestartForbidden(*store)
               ? absl::AbortedError(
                     "the servers have ended the job, as the training "
                     "diverged; their errors give the reason")
               : absl::CancelledError("the servers have ended the job");
  }

  torch::Tensor ForwardAndBackward(const StepInput& input) {
    torch::Tensor loss;
    for (size_t i = 0; i < input.micro_batches.size(); ++i) {
      run_.model().set_dropout_seed(input.dropout_seeds[i]);
      input.clock.Begin(Phase::kForward);
      torch::Tensor share = run_.objective().LossShare(input.micro_batches[i],
                                                       input.micro_batches);
      input.clock.Begin(Phase::kBackward);
      share.backward();
      loss = loss.defined() ? loss + share.detach() : share.detach();
    }
    return loss;
  }

  // Sleeps until the step, without its waits, has taken the straggler's factor
  // times as long.
  void SlowDown(double start_seconds, double waited_seconds) const {
    const double busy = SteadySeconds() - start_seconds - waited_seconds;
    absl::SleepFor(absl::Seconds((role_.job.slow_factor - 1) * busy));
  }

  void Push(ParameterClient::Push done) {
    const ServerJobConfig& job = role_.job;
    if (job.local_steps > 1) {
      done.learning_rate = job.outer.learning_rate;
      client_.PushDifference(done, job.attraction);
    } else {
      client_.PushGradients(done);
    }
  }

  const Role& role_;
  TrainingRun& run_;
  ParameterClient client_;
};

absl::Status Work(const TrainConfig& config, Role& role) {
  TrainConfig own = config;
  own.checkpoint = {};            // the servers save checkpoints
  own.init_from.clear();          // and read the initial weights
  own.on_nan = OnNan::kContinue;  // the servers check every loss
  own.evaluate = false;
  ASSIGN_OR_RETURN(std::unique_ptr<TrainingRun> run,
                   TrainingRun::Create(own, role.worker));
  WorkerSteps steps(role, *run);
  RETURN_IF_ERROR(run->Start(role.job.local_steps > 1
                                 ? TrainableParameters(run->model())
                                 : NamedTensors()));
  steps.Begin();
  return run->Train(
      [&steps](const StepInput& input) { return steps.Step(input); },
      /*evaluate=*/nullptr, [&steps] { return steps.Finish(); });
}

absl::Status Run(const TrainConfig& config, const Worker& worker) {
  ASSIGN_OR_RETURN(Role role, TakeRole(worker));
  return worker.env.rank < role.job.servers ? Serve(config, role)
                                            : Work(config, role);
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  // With Gloo the other ranks survive the death of a rank; NCCL ends them all.
  absl::SetFlag(&FLAGS_backend, "gloo");
  return rankwise::TrainerMain(
      argc, argv,
      {.name = "parameter_server",
       .usage = "Trains with parameter servers and workers, synchronously or "
                "asynchronously.\n"
                "  bazel run //trainers:parameter_server -- --nproc=3 "
                "--consistency=ssp:2\n"
                "All flags: --help",
       .distributed = true,
       .check_flags = rankwise::CheckParameterServerFlags,
       .divide = [](int) -> absl::StatusOr<rankwise::Parallelism> {
         return rankwise::Parallelism{.servers = rankwise::ServersFromFlags()};
       },
       .run = rankwise::Run});
}
