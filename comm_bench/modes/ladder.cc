#include "comm_bench/modes/ladder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full_like.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/device/device_event.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/autograd/autograd.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/nn/module.h"

namespace rankwise::comm_bench {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using Tensors = std::vector<at::Tensor>;

// One way to reduce the payload.
struct Rung {
  std::string name;
  std::function<void()> fill;  // overwrites old results
  std::function<void()> run;
  std::function<at::Tensor()> result;
  double expected = 0;  // value of each element of the result
};

double SumOfRanks(const Communicator& comm) {
  return comm.world_size() * (comm.world_size() + 1) / 2.0;
}

at::Tensor NewPayload(const Communicator& comm, int64_t count) {
  return at::zeros({count}, comm.device());
}

// Returns a rung whose `run` reduces `payload` in place.
Rung InPlaceRung(std::string name, const Communicator& comm, at::Tensor payload,
                 std::function<void()> run) {
  return {std::move(name),
          [payload, own = comm.rank() + 1.0] { payload.fill_(own); },
          std::move(run), [payload] { return payload; }, SumOfRanks(comm)};
}

// Returns an all-reduce through a backend or a process group.
template <typename Reducer>
Rung AllReduceRung(std::string name, const Communicator& comm, int64_t count,
                   c10::intrusive_ptr<Reducer> reducer) {
  Tensors payload = {NewPayload(comm, count)};
  return InPlaceRung(
      std::move(name), comm, payload[0],
      [reducer, payload]() mutable { reducer->allreduce(payload)->wait(); });
}

// Returns a direct ncclAllReduce or MPI_Allreduce.
absl::StatusOr<Rung> RawRung(const Communicator& comm, Control& control,
                             int64_t count) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Layer> layer,
                   comm.runs_on_device()
                       ? ConnectNcclLayer(control, {}, comm.device())
                       : ConnectMpiLayer(control, {}));
  const Layer::Start start = layer->Prepare(**FindCollective("all_reduce"),
                                            {.count = count, .in_place = true});
  const at::Tensor payload = NewPayload(comm, count);
  return InPlaceRung(layer->name(), comm, payload,
                     [layer, start, buffers = Buffers{payload, payload},
                      works = Works()]() mutable { start(buffers, works); });
}

// A rank's exchange with one peer at one point of an all-reduce.
struct ReduceStep {
  int peer = 0;
  bool send = false;
  enum class Receive { kNothing, kReduce, kCopy };
  Receive receive = Receive::kNothing;
};

// Recursive doubling (Thakur, Rabenseifner and Gropp 2005, section 4.3): in
// round i, ranks at distance 2^i exchange their partial results. If `size` is
// not a power of two, the first ranks fold in pairs before and unfold after.
std::vector<ReduceStep> ReduceSteps(int rank, int size) {
  using Receive = ReduceStep::Receive;
  int power = 1;
  while (power * 2 <= size) power *= 2;
  const int folded = size - power;  // pairs (0, 1), (2, 3), ...
  const bool in_pair = rank < 2 * folded;
  if (in_pair && rank % 2 == 0) {
    return {{rank + 1, true, Receive::kNothing},
            {rank + 1, false, Receive::kCopy}};
  }
  std::vector<ReduceStep> steps;
  if (in_pair) steps.push_back({rank - 1, false, Receive::kReduce});
  const int place = in_pair ? rank / 2 : rank - folded;
  for (int distance = 1; distance < power; distance *= 2) {
    const int other = place ^ distance;
    const int peer = other < folded ? 2 * other + 1 : other + folded;
    steps.push_back({peer, true, Receive::kReduce});
  }
  if (in_pair) steps.push_back({rank - 1, true, Receive::kNothing});
  return steps;
}

// Neither message waits for the other. NCCL, which would run them one after the
// other, gets both as one group.
void Exchange(c10d::Backend& backend, const ReduceStep& step, Tensors& mine,
              Tensors& theirs) {
  const bool grouped = backend.supportsCoalescing();
  if (grouped) backend.startCoalescing();
  Works works;
  if (step.receive != ReduceStep::Receive::kNothing) {
    works.push_back(backend.recv(theirs, step.peer, /*tag=*/0));
  }
  if (step.send) works.push_back(backend.send(mine, step.peer, /*tag=*/0));
  if (grouped) works = {backend.endCoalescing()};
  for (const auto& work : works) work->wait();
}

// Returns recursive doubling with the backend's own messages.
Rung MessagesRung(const Communicator& comm, int64_t count,
                  const BackendPtr& backend) {
  Tensors mine = {NewPayload(comm, count)};
  Tensors theirs = {NewPayload(comm, count)};
  const auto steps = ReduceSteps(comm.rank(), comm.world_size());
  return InPlaceRung("messages", comm, mine[0],
                     [backend, steps, mine, theirs]() mutable {
                       using Receive = ReduceStep::Receive;
                       for (const ReduceStep& step : steps) {
                         Exchange(*backend, step, mine, theirs);
                         if (step.receive == Receive::kReduce)
                           mine[0].add_(theirs[0]);
                         if (step.receive == Receive::kCopy)
                           mine[0].copy_(theirs[0]);
                       }
                     });
}

struct OneParameter : torch::nn::Module {
  explicit OneParameter(at::Tensor values)
      : values(register_parameter("values", std::move(values))) {}
  at::Tensor values;
};

// The rungs, and the objects they use.
struct Ladder {
  std::unique_ptr<OneParameter> module;
  std::unique_ptr<DistributedDataParallel> ddp;
  std::vector<Rung> rungs;
};

// Returns a training step of the ladder's one parameter, with a given gradient.
Rung ReducerRung(const Ladder& ladder, bool sync, const Communicator& comm) {
  const at::Tensor values = ladder.module->values;
  const at::Tensor gradient = at::full_like(values.detach(), comm.rank() + 1.0);
  const auto run = [&ddp = *ladder.ddp, values, gradient, sync] {
    ddp.SetSync(sync);
    if (values.grad().defined()) values.mutable_grad().zero_();
    ddp.BeforeForward();
    const at::Tensor output = values.view_as(values);
    ddp.BeforeBackward({output});
    torch::autograd::backward({output}, {gradient});
    ddp.AfterBackward();
  };
  return {sync ? "reducer" : "backward", [] {}, run,
          [values] { return values.grad(); },
          sync ? SumOfRanks(comm) / comm.world_size() : comm.rank() + 1.0};
}

// Returns the process group without the monitor around its backend.
GroupPtr Unmonitored(const Communicator& comm, const BackendPtr& bare) {
  const auto type = FindBackend(comm.backend())->type;
  auto group =
      c10::make_intrusive<c10d::ProcessGroup>(comm.rank(), comm.world_size());
  group->setBackend(comm.device().type(), type, bare);
  group->setDefaultBackend(type);
  return group;
}

absl::StatusOr<Ladder> Build(Communicator& comm, Control& control,
                             int64_t count) {
  Ladder ladder;
  ladder.module = std::make_unique<OneParameter>(NewPayload(comm, count));
  DdpConfig config;
  config.bucket_cap_bytes = config.first_bucket_bytes =
      std::max<int64_t>(count * sizeof(float), 1);
  ASSIGN_OR_RETURN(ladder.ddp, DistributedDataParallel::Create(
                                   *ladder.module, comm.world(), config));
  const GroupPtr& group = comm.process_group();
  const BackendPtr bare =
      WithoutMonitoring(group->getBackend(comm.device().type()));
  std::vector<Rung>& rungs = ladder.rungs;
  if (comm.runs_on_device() || comm.backend() == "mpi") {
    ASSIGN_OR_RETURN(Rung raw, RawRung(comm, control, count));
    rungs.push_back(std::move(raw));
  }
  rungs.push_back(MessagesRung(comm, count, bare));
  rungs.push_back(AllReduceRung("backend", comm, count, bare));
  rungs.push_back(AllReduceRung("c10d", comm, count, Unmonitored(comm, bare)));
  rungs.push_back(AllReduceRung("monitored", comm, count, group));
  for (const bool sync : {false, true}) {
    rungs.push_back(ReducerRung(ladder, sync, comm));
  }
  return ladder;
}

// Whether every element of `result` is within the rounding error of the mean
// over ranks.
bool IsRight(const at::Tensor& result, double expected) {
  const double tolerance = 1e-5 * std::abs(expected);
  return result.defined() &&
         (result - expected).abs().max().item<double>() <= tolerance;
}

// All ranks run all rungs before any rank fails.
absl::Status Check(const Ladder& ladder, Control& control, c10::Device device) {
  std::string wrong;
  for (const Rung& rung : ladder.rungs) {
    rung.fill();
    rung.run();
    SynchronizeDevice(device);
    if (wrong.empty() && !IsRight(rung.result(), rung.expected)) {
      wrong = rung.name;
    }
  }
  const auto all = control.Gather({wrong.empty() ? 0.0 : 1.0});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == 0) continue;
    return absl::InternalError(absl::StrCat(
        "the ladder's sums are wrong on rank ", rank,
        wrong.empty() ? "" : absl::StrCat(": first in rung ", wrong)));
  }
  return absl::OkStatus();
}

// Returns the time by the device's events, or 0 for the host's clock. Blocks
// until the device is done.
double Time(const Rung& rung, c10::Device device, bool events) {
  if (!events) {
    rung.run();
    SynchronizeDevice(device);
    return 0;
  }
  const DeviceEvent before(device);
  rung.run();
  const DeviceEvent after(device);
  SynchronizeDevice(device);
  return WaitForSecondsBetween(before, after);
}

// Returns the iterations index, index + stride, index + 2 stride, ... of `all`.
Series EveryNth(const Series& all, int64_t index, int64_t stride) {
  Series series;
  series.clock_error_seconds = all.clock_error_seconds;
  series.end = all.end;
  for (int64_t i = index; i < all.iterations(); i += stride) {
    series.seconds.push_back(all.seconds[i]);
    series.start_seconds.push_back(all.start_seconds[i]);
    series.extents.push_back(all.extents[i]);
  }
  for (const int64_t late : all.late) {
    if (late % stride == index) series.late.push_back(late / stride);
  }
  return series;
}

void FillInAdds(std::vector<LadderRung>& rungs) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Estimate below = {kNone, kNone, kNone};
  Estimate backward;
  for (LadderRung& rung : rungs) {
    Estimate own = MedianOf(rung.time);
    if (rung.name == "backward") {
      rung.adds_seconds = rung.adds_reach_seconds = kNone;
      backward = own;
      continue;
    }
    if (rung.name == "reducer") own = Difference(own, backward);
    const Estimate adds = Difference(own, below);
    rung.adds_seconds = adds.value;
    rung.adds_reach_seconds = adds.reach();
    below = own;
  }
}

}  // namespace

absl::StatusOr<LadderResult> RunLadder(Communicator& comm, Control& control,
                                       int64_t bytes,
                                       const TimingConfig& config,
                                       const std::atomic<bool>* stop,
                                       bool events) {
  constexpr int64_t kElement = sizeof(float);
  const int64_t count = std::max<int64_t>((bytes + kElement - 1) / kElement, 1);
  ASSIGN_OR_RETURN(const Ladder ladder, Build(comm, control, count));
  const c10::Device device = comm.device();
  RETURN_IF_ERROR(Check(ladder, control, device));
  for (const Rung& rung : ladder.rungs) rung.fill();

  const auto rungs = static_cast<int64_t>(ladder.rungs.size());
  TimingConfig interleaved = config;
  interleaved.iterations =
      (config.iterations > 0 ? config.iterations : 200) * rungs;
  // Minimum warm-up of TimeIterations. Warm-up must be whole rounds, because an
  // iteration's index determines its rung.
  const int64_t least = config.sync == Sync::kWindow ? 1 : 0;
  interleaved.warmup =
      (config.warmup >= 0 ? std::max(config.warmup, least) : 20) * rungs;
  double seconds = 0;
  if (events) interleaved.own_seconds = [&seconds] { return seconds; };
  const Series all = TimeIterations(
      control,
      [&](int64_t index) {
        seconds = Time(ladder.rungs[index % rungs], device, events);
      },
      interleaved, stop);
  RETURN_IF_ERROR(Check(ladder, control, device));

  LadderResult result;
  result.backend = std::string(comm.backend());
  result.bytes = count * kElement;
  result.world_size = comm.world_size();
  result.events = events;
  result.stopped = all.end == Series::End::kInterrupted;
  for (int64_t i = 0; i < std::min(rungs, all.iterations()); ++i) {
    LadderRung& rung = result.rungs.emplace_back();
    rung.name = ladder.rungs[i].name;
    rung.series = EveryNth(all, i, rungs);
    rung.time = Summarize(rung.series, Across::kSlowest);
    const std::vector<double> counted = Combine(rung.series, Across::kSlowest);
    rung.mean_seconds = counted.empty() ? 0 : Mean(counted);
  }
  FillInAdds(result.rungs);
  return result;
}

CallDescription DescribeRung(const LadderResult& ladder,
                             const LadderRung& rung) {
  const Collective& all_reduce = **FindCollective("all_reduce");
  CallDescription call = DescribeCall(
      all_reduce, {.count = ladder.bytes / static_cast<int64_t>(sizeof(float)),
                   .in_place = true,
                   .world_size = ladder.world_size});
  call.layer = rung.name;
  call.timing = ladder.events ? "events" : "host";
  return call;
}

std::string FormatLadder(const LadderResult& result) {
  constexpr double kMicro = 1e6;
  std::string text = absl::StrFormat(
      "# ladder: all_reduce of %d bytes, %s, %s; microseconds of the "
      "slowest rank%s; +-CI: 95 %% intervals\n"
      "#%-11s%9s%10s%10s%8s%10s%10s%10s%10s%8s\n",
      result.bytes, Counted(result.world_size, "rank"), result.backend,
      result.events ? ", by events" : "", " rung", "calls", "min", "median",
      "+-CI %", "p95", "max", "mean", "adds", "+-CI");
  const auto microseconds = [](double seconds, const char* sign) {
    if (std::isnan(seconds)) return std::string("-");
    return absl::StrFormat("%s%.1f", seconds < 0 ? "" : sign, seconds * kMicro);
  };
  for (const LadderRung& rung : result.rungs) {
    absl::StrAppendFormat(
        &text, "  %-10s%9d%10.1f%10.1f%8s%10.1f%10.1f%10.1f%10s%8s\n",
        rung.name, rung.time.samples, rung.time.min * kMicro,
        rung.time.median * kMicro, ReachInPercent(MedianOf(rung.time)),
        rung.time.p95 * kMicro, rung.time.max * kMicro,
        rung.mean_seconds * kMicro, microseconds(rung.adds_seconds, "+"),
        microseconds(rung.adds_reach_seconds, ""));
  }
  return text;
}

}  // namespace rankwise::comm_bench
