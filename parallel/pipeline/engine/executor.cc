#include "parallel/pipeline/engine/executor.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ATen/ops/zeros.h"
#include "c10/core/StreamGuard.h"
#include "c10/util/Exception.h"
#include "parallel/comm/group.h"
#include "parallel/pipeline/engine/stage_runner.h"
#include "parallel/pipeline/engine/stage_streams.h"
#include "parallel/pipeline/engine/transport.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/trace.h"
#include "parallel/trace/operators.h"

namespace rankwise {

// The state that all steps of an executor share.
struct PipelineExecutor::Parts {
  // `devices`: by stage.
  Parts(const std::vector<Stage*>& stages, std::vector<c10::Device> devices,
        const ExecutorConfig& executor_config);

  int num_ranks() const {
    return group.has_value() ? group->num_ranks()
                             : static_cast<int>(transports.size());
  }
  // Throws unless `schedule` is for these stages and ranks.
  void CheckFits(const Schedule& schedule) const;

  const ExecutorConfig config;
  StageStreams streams;
  // By stage; nullptr for stages of another process.
  std::vector<std::unique_ptr<StageRunner>> runners;
  std::optional<GroupTransport> group;   // if one rank runs here
  std::optional<LocalTransports> local;  // if all ranks run here
  std::vector<Transport*> transports;    // by rank in this process
  std::vector<WireBuffers> buffers;      // by rank in this process
};

PipelineExecutor::Parts::Parts(const std::vector<Stage*>& stages,
                               std::vector<c10::Device> devices,
                               const ExecutorConfig& executor_config)
    : config(executor_config), streams(stages, std::move(devices)) {
  TORCH_CHECK(!stages.empty(), "a pipeline without stages");
  TORCH_CHECK(stages.size() == config.rank_of_stage.size(), stages.size(),
              " stages, but ranks for ", config.rank_of_stage.size());
  for (Stage* stage : stages) {
    const bool is_last = runners.size() + 1 == stages.size();
    runners.push_back(stage == nullptr ? nullptr
                                       : std::make_unique<StageRunner>(
                                             stage, is_last, config.recompute));
  }
  for (const c10::Device& device : config.devices)
    buffers.emplace_back(device, config.skip_communication);
}

void PipelineExecutor::Parts::CheckFits(const Schedule& schedule) const {
  TORCH_CHECK(schedule.num_ranks() == num_ranks(), "schedule ", schedule.name,
              " is for ", schedule.num_ranks(), " ranks; the pipeline has ",
              num_ranks());
  TORCH_CHECK(static_cast<size_t>(schedule.num_stages()) == runners.size(),
              "schedule ", schedule.name, " is for ", schedule.num_stages(),
              " stages; the model was cut into ", runners.size());
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    TORCH_CHECK(schedule.rank_of_stage[stage] == config.rank_of_stage[stage],
                "schedule ", schedule.name, " runs stage ", stage, " on rank ",
                schedule.rank_of_stage[stage], "; the model was cut so that ",
                "rank ", config.rank_of_stage[stage], " holds it");
  }
}

namespace {

bool CompletesGradients(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGrad;
}

// One rank's part of one step: performs the rank's actions. Receives are posted
// at their place in the list and waited for by the action that needs them.
// Sends are released once a received value proves that they have arrived, the
// last ones at the end of the step. On an accelerator the host only issues:
// actions go to their stages' streams, which are ordered where one stage uses
// another's result. Used once, by one thread, between StageStreams::Begin and
// End.
class RankRun {
 public:
  struct Options {
    bool evaluate = false;  // F runs without gradients, shares are dropped
    // Maximum number of sends in flight; beyond it the oldest one is waited
    // for. 0 for no limit. Only for schedules that do not deadlock when sends
    // block.
    size_t max_sends = 0;
  };

  // Starts the step. `rank_here`: index among this process's ranks. `schedule`
  // and `parts` must outlive the run.
  RankRun(const Schedule& schedule,
          std::shared_ptr<const SendReleases> releases,
          PipelineExecutor::Parts& parts, size_t rank_here,
          const Options& options);

  bool done() const { return next_ == actions_.size(); }
  void Next();
  // Call after the last action. Waits for the remaining sends.
  void Finish();

  // Call after Finish. Does not set the loss.
  ExecutorStep TakeStep();

  // Call after Finish. Returns the sum of the last stage's shares of the loss,
  // in micro-batch order; 0 on other ranks.
  at::Tensor SumOfShares() const;

 private:
  struct InFlight {
    P2POp op;
    at::Tensor value;   // of a receive: the value for the stage
    size_t action = 0;  // index in the list
  };
  struct Made {
    at::Tensor tensor;
    std::optional<DeviceEvent> ready;  // nullopt on a CPU
  };

  void Communicate(size_t position);
  InFlight MakeOp(size_t position, size_t value);
  void Compute(size_t position);
  void Count(const Action& action);
  at::Tensor Take(size_t value, int stage);
  void Wait(InFlight in_flight);
  void FinishSend(size_t value);

  const Schedule& schedule_;
  const Values values_;
  PipelineExecutor::Parts& parts_;
  Transport& transport_;
  WireBuffers& buffers_;
  const std::vector<Action>& actions_;
  const std::shared_ptr<const SendReleases> releases_;
  const c10::Device device_;
  const Options options_;

  size_t next_ = 0;
  ExecutorStep step_;
  std::vector<at::Tensor> shares_;  // by micro-batch; empty on other ranks
  // By value: those made here and not yet used or sent; receives and sends in
  // flight.
  std::unordered_map<size_t, Made> made_;
  std::unordered_map<size_t, InFlight> receives_, sends_;
  std::deque<size_t> send_order_;       // with max_sends only
  std::vector<int> missing_gradients_;  // remaining B and W, by stage
  int activations_ = 0;
};

RankRun::RankRun(const Schedule& schedule,
                 std::shared_ptr<const SendReleases> releases,
                 PipelineExecutor::Parts& parts, size_t rank_here,
                 const Options& options)
    : schedule_(schedule),
      values_(schedule),
      parts_(parts),
      transport_(*parts.transports[rank_here]),
      buffers_(parts.buffers[rank_here]),
      actions_(schedule.actions[transport_.rank()]),
      releases_(std::move(releases)),
      device_(transport_.device()),
      options_(options),
      missing_gradients_(schedule.num_stages()) {
  transport_.TakeWaits();  // waits between two steps belong to neither
  for (const Action& action : actions_) {
    if (CompletesGradients(action.kind)) ++missing_gradients_[action.stage];
    step_.spans.push_back({action});
  }
  if (!options_.evaluate && schedule.rank_of_stage.back() == transport_.rank())
    shares_.resize(schedule.num_micro_batches);
  step_.events.emplace(DeviceEvent(device_));
  step_.events->spans.resize(actions_.size());
}

void RankRun::Next() {
  if (IsCompute(actions_[next_].kind)) return Compute(next_++);
  Communicate(next_++);
  while (send_order_.size() > options_.max_sends) {
    FinishSend(send_order_.front());
    send_order_.pop_front();
  }
}

void RankRun::Finish() {
  while (!sends_.empty()) FinishSend(sends_.begin()->first);
}

ExecutorStep RankRun::TakeStep() {
  step_.waits = transport_.TakeWaits();
  step_.events->end.emplace(device_);
  return std::move(step_);
}

at::Tensor RankRun::SumOfShares() const {
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kFloat).device(device_));
  for (const at::Tensor& share : shares_) sum += share.to(at::kFloat);
  return sum;
}

void RankRun::Communicate(size_t position) {
  const Action& action = actions_[position];
  const bool is_send = IsSend(action.kind);
  const size_t value = values_.CarriedBy(action);
  // A send is ordered after the value's computation, a receive after nothing.
  const c10::MultiStreamGuard stream(is_send
                                         ? parts_.streams.Of(action.stage)
                                         : parts_.streams.Arrivals(device_));
  step_.events->spans[position].first.emplace(device_);
  auto& table = is_send ? sends_ : receives_;
  InFlight& in_flight =
      table.emplace(value, MakeOp(position, value)).first->second;
  (is_send ? step_.sent_bytes : step_.received_bytes) +=
      static_cast<int64_t>(in_flight.op.tensor.nbytes());
  if (is_send && options_.max_sends > 0) send_order_.push_back(value);
  transport_.Start(in_flight.op);
}

RankRun::InFlight RankRun::MakeOp(size_t position, size_t value) {
  const Action& action = actions_[position];
  InFlight in_flight;
  in_flight.action = position;
  P2POp& op = in_flight.op;
  op.is_send = IsSend(action.kind);
  op.tag = static_cast<int>(value);
  op.peer = op.is_send ? values_.RankOfUser(value) : values_.RankOfMaker(value);
  if (op.is_send) {
    op.tensor = ToWire(Take(value, action.stage));
  } else {
    const Stage& stage = parts_.runners[action.stage]->stage();
    const bool forward = action.kind == ActionKind::kRecvForward;
    in_flight.value = buffers_.Take(
        WireShape(forward ? stage.InputShape(action.micro_batch)
                          : stage.OutputShape(action.micro_batch)),
        forward ? stage.InputType() : stage.OutputType());
    op.tensor = in_flight.value;
  }
  if (parts_.config.skip_communication && !options_.evaluate)
    op.tensor = at::zeros({1}, op.tensor.options());
  return in_flight;
}

void RankRun::Compute(size_t position) {
  const Action& action = actions_[position];
  StageRunner& runner = *parts_.runners[action.stage];
  const c10::MultiStreamGuard stream(parts_.streams.Of(action.stage));
  const size_t needed = values_.NeededBy(action);
  at::Tensor input;
  if (needed != Values::kNone) input = Take(needed, action.stage);
  auto& [start, end] = step_.events->spans[position];
  start.emplace(device_);
  ScopedRange range;
  if (RangesOn()) range = ScopedRange(TraceName(action));
  const at::Tensor result =
      options_.evaluate
          ? runner.Evaluate(action.micro_batch, input)
          : runner.Perform(action.kind, action.micro_batch, input);
  range.Close();
  if (const size_t made = values_.MadeBy(action); made != Values::kNone) {
    made_[made].tensor = result;
    if (!device_.is_cpu()) made_[made].ready.emplace(device_);
  }
  if (!shares_.empty() && action.kind == ActionKind::kForward &&
      action.stage + 1 == schedule_.num_stages())
    shares_[action.micro_batch] = result;
  Count(action);
  end.emplace(device_);
}

void RankRun::Count(const Action& action) {
  if (action.kind == ActionKind::kForward) ++activations_;
  step_.peak_activations = std::max(step_.peak_activations, activations_);
  if (!CompletesGradients(action.kind)) return;
  --activations_;
  const auto& on_gradients_ready = parts_.config.on_gradients_ready;
  if (--missing_gradients_[action.stage] == 0 && on_gradients_ready)
    on_gradients_ready(action.stage);
}

// Returns a value for its only user, `stage`, whose stream is current.
at::Tensor RankRun::Take(size_t value, int stage) {
  auto made = made_.extract(value);
  if (!made.empty()) {
    const at::Tensor& tensor = made.mapped().tensor;
    if (made.mapped().ready.has_value()) {
      made.mapped().ready->Block(parts_.streams.HomeOf(stage));
      RecordUse(tensor, parts_.streams.HomeOf(stage));
    }
    return FromWire(ToWire(tensor));
  }
  auto received = receives_.extract(value);
  TORCH_CHECK(!received.empty(), "schedule ", schedule_.name, ": ",
              ToString(values_.ReceiveOf(value)),
              " is needed before it is posted; schedules must come from "
              "AddCommunication");
  const at::Tensor tensor = FromWire(received.mapped().value);
  Wait(std::move(received.mapped()));
  RecordUse(tensor, parts_.streams.HomeOf(stage));
  releases_->VisitArrived(value, [this](size_t sent) { FinishSend(sent); });
  return tensor;
}

void RankRun::Wait(InFlight in_flight) {
  transport_.Wait(in_flight.op);
  step_.events->spans[in_flight.action].second.emplace(device_);
}

void RankRun::FinishSend(size_t value) {
  auto sent = sends_.extract(value);
  if (sent.empty()) return;
  // Afterwards the stage that made the value may overwrite its memory.
  const c10::MultiStreamGuard stream(parts_.streams.Of(values_.MakerOf(value)));
  Wait(std::move(sent.mapped()));
}

// Runs `schedule` on the ranks of this process; returns their finished runs.
std::vector<std::unique_ptr<RankRun>> RunRanks(
    const Schedule& schedule, PipelineExecutor::Parts& parts,
    const RankRun::Options& options) {
  if (parts.group.has_value()) parts.group->Connect(schedule);
  const auto releases = std::make_shared<const SendReleases>(schedule);
  std::vector<std::unique_ptr<RankRun>> runs;
  for (size_t rank = 0; rank < parts.transports.size(); ++rank)
    runs.push_back(
        std::make_unique<RankRun>(schedule, releases, parts, rank, options));
  parts.streams.Begin();
  if (runs.size() == 1) {
    while (!runs[0]->done()) runs[0]->Next();
  } else {
    for (int rank : IssueOrder(schedule))
      runs[static_cast<size_t>(rank)]->Next();
  }
  for (const auto& run : runs) {
    TORCH_CHECK(run->done(), "schedule ", schedule.name,
                " cannot run: its ranks wait for each other in a cycle");
    run->Finish();
  }
  parts.streams.End();
  return runs;
}

}  // namespace

PipelineExecutor::PipelineExecutor(const Group& pipeline,
                                   const std::vector<Stage*>& stages,
                                   const ExecutorConfig& config)
    : parts_(std::make_unique<Parts>(
          stages, std::vector<c10::Device>(stages.size(), config.devices.at(0)),
          config)) {
  parts_->group.emplace(pipeline, config.devices[0]);
  parts_->transports = {&*parts_->group};
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const int rank = config.rank_of_stage[stage];
    const bool is_ours = rank == pipeline.place();
    TORCH_CHECK(is_ours == (stages[stage] != nullptr), "stage ", stage,
                " runs on rank ", rank, "; rank ", pipeline.place(),
                is_ours ? " does not hold it" : " holds it");
  }
}

PipelineExecutor::PipelineExecutor(const std::vector<Stage*>& stages,
                                   const ExecutorConfig& config) {
  std::vector<c10::Device> of_stages;
  for (int rank : config.rank_of_stage)
    of_stages.push_back(config.devices.at(static_cast<size_t>(rank)));
  parts_ = std::make_unique<Parts>(stages, std::move(of_stages), config);
  parts_->local.emplace(config.devices, parts_->streams);
  parts_->transports = parts_->local->All();
}

PipelineExecutor::~PipelineExecutor() = default;

std::vector<ExecutorStep> PipelineExecutor::Run(const Schedule& schedule) {
  parts_->CheckFits(schedule);
  const auto runs = RunRanks(schedule, *parts_, {});
  const int last_rank = schedule.rank_of_stage.back();
  std::optional<GroupTransport>& group = parts_->group;
  const at::Tensor loss =
      runs[group.has_value() ? 0 : static_cast<size_t>(last_rank)]
          ->SumOfShares();
  if (group.has_value()) group->Broadcast(loss, last_rank);
  std::vector<ExecutorStep> steps;
  for (const auto& run : runs) {
    steps.push_back(run->TakeStep());
    steps.back().loss = loss;
  }
  return steps;
}

void PipelineExecutor::RunForward(int micro_batches) {
  const Schedule schedule = MakeForwardSchedule(
      parts_->config.rank_of_stage, parts_->num_ranks(), micro_batches);
  RankRun::Options options = {.evaluate = true};
  if (parts_->group.has_value()) {
    // Lets every stage of this rank run ahead of its reader.
    const int rank = parts_->group->rank();
    options.max_sends = 2 * schedule.StagesOf(rank).size() + 2;
  }
  RunRanks(schedule, *parts_, options);
}

void ExecutorStep::Read(const HostAnchor& anchor) {
  if (has_times()) return;
  events->end->Wait();
  const DeviceEvent& start = events->start;
  start_seconds = *anchor.HostSeconds(start);
  const auto seconds = [&](const DeviceEvent& event) {
    return start_seconds + WaitForSecondsBetween(start, event);
  };
  end_seconds = seconds(*events->end);
  for (size_t i = 0; i < spans.size(); ++i) {
    spans[i].start_seconds = seconds(*events->spans[i].first);
    spans[i].end_seconds = seconds(*events->spans[i].second);
  }
  // Stages on separate streams may start in a different order than issued.
  if (!start.device().is_cpu()) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span& a, const Span& b) {
                       return a.start_seconds < b.start_seconds;
                     });
  }
  events.reset();
}

double ExecutorStep::wait_seconds() const {
  double sum = 0;
  for (const MessageWait& wait : waits) sum += wait.seconds.Wait();
  return sum;
}

}  // namespace rankwise
