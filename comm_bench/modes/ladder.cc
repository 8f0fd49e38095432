#include "comm_bench/modes/ladder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/util/Exception.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/comm/diagnosis/monitored_backend.h"
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

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using Tensors = std::vector<at::Tensor>;

// One way of reducing the payload, with the tensors that it works on.
class Rung {
 public:
  virtual ~Rung() = default;
  virtual void Fill() = 0;  // so that Run's result can be told
  virtual void Run() = 0;
  virtual const at::Tensor& result() const = 0;
  virtual double expected() const = 0;  // of each element
};

double SumOfRanks(int size) { return size * (size + 1) / 2.0; }

// All-reduces `tensor` through whatever has such a function.
template <typename Reducer>
class AllReduceRung : public Rung {
 public:
  AllReduceRung(c10::intrusive_ptr<Reducer> reducer, const Communicator& comm,
                int64_t count)
      : reducer_(std::move(reducer)),
        rank_(comm.rank()),
        size_(comm.world_size()),
        tensors_{at::zeros({count}, comm.device())} {}

  void Fill() override { tensors_[0].fill_(rank_ + 1.0); }
  void Run() override { reducer_->allreduce(tensors_)->wait(); }
  const at::Tensor& result() const override { return tensors_[0]; }
  double expected() const override { return SumOfRanks(size_); }

 private:
  const c10::intrusive_ptr<Reducer> reducer_;
  const int rank_, size_;
  Tensors tensors_;
};

// ncclAllReduce itself.
class RawNcclRung : public Rung {
 public:
  RawNcclRung(std::unique_ptr<RawNccl> nccl, const Communicator& comm,
              int64_t count)
      : nccl_(std::move(nccl)),
        rank_(comm.rank()),
        size_(comm.world_size()),
        calls_{{.kind = NcclCall::Kind::kAllReduce, .count = count}},
        tensor_(at::zeros({count}, comm.device())) {}

  void Fill() override { tensor_.fill_(rank_ + 1.0); }
  void Run() override {
    const absl::Status status =
        nccl_->Run(calls_, tensor_, tensor_, ReduceOp::SUM);
    TORCH_CHECK(status.ok(), std::string(status.message()));
  }
  const at::Tensor& result() const override { return tensor_; }
  double expected() const override { return SumOfRanks(size_); }

 private:
  const std::unique_ptr<RawNccl> nccl_;
  const int rank_, size_;
  const NcclGroup calls_;
  at::Tensor tensor_;
};

// What a rank does with one peer at one point of an all-reduce.
struct ReduceStep {
  int peer = 0;
  bool send = false;
  enum class Receive { kNothing, kReduce, kCopy };
  Receive receive = Receive::kNothing;
};

// Recursive doubling (Thakur, Rabenseifner and Gropp 2005, section 4.3): in
// round i, ranks at distance 2^i exchange what they have so far. Where `size`
// is no power of two, the first ranks fold in pairs before and unfold after.
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

// Recursive doubling from the backend's own messages.
class MessagesRung : public Rung {
 public:
  MessagesRung(BackendPtr backend, const Communicator& comm, int64_t count)
      : backend_(std::move(backend)),
        rank_(comm.rank()),
        size_(comm.world_size()),
        steps_(ReduceSteps(rank_, size_)),
        mine_{at::zeros({count}, comm.device())},
        theirs_{at::zeros({count}, comm.device())} {}

  void Fill() override { mine_[0].fill_(rank_ + 1.0); }
  void Run() override {
    for (const ReduceStep& step : steps_) RunStep(step);
  }
  const at::Tensor& result() const override { return mine_[0]; }
  double expected() const override { return SumOfRanks(size_); }

 private:
  void RunStep(const ReduceStep& step) {
    using Receive = ReduceStep::Receive;
    Exchange(step.peer, step.receive != Receive::kNothing, step.send);
    if (step.receive == Receive::kReduce) mine_[0].add_(theirs_[0]);
    if (step.receive == Receive::kCopy) mine_[0].copy_(theirs_[0]);
  }

  // Neither message waits for the other. NCCL, which would run one after the
  // other, gets both as one group.
  void Exchange(int peer, bool receive, bool send) {
    const bool grouped = backend_->supportsCoalescing();
    if (grouped) backend_->startCoalescing();
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    if (receive) works.push_back(backend_->recv(theirs_, peer, /*tag=*/0));
    if (send) works.push_back(backend_->send(mine_, peer, /*tag=*/0));
    if (grouped) works = {backend_->endCoalescing()};
    for (const auto& work : works) work->wait();
  }

  const BackendPtr backend_;
  const int rank_, size_;
  const std::vector<ReduceStep> steps_;
  Tensors mine_, theirs_;
};

struct OneParameter : torch::nn::Module {
  explicit OneParameter(at::Tensor values)
      : values(register_parameter("values", std::move(values))) {}
  at::Tensor values;
};

// A training step of one parameter whose gradient is given.
class ReducerRung : public Rung {
 public:
  ReducerRung(DistributedDataParallel& ddp, OneParameter& module, bool sync,
              const Communicator& comm)
      : ddp_(ddp),
        module_(module),
        sync_(sync),
        rank_(comm.rank()),
        size_(comm.world_size()),
        gradient_(at::full_like(module.values.detach(), rank_ + 1.0)) {}

  void Fill() override {}
  void Run() override {
    ddp_.SetSync(sync_);
    if (module_.values.grad().defined()) module_.values.mutable_grad().zero_();
    ddp_.BeforeForward();
    const at::Tensor output = module_.values.view_as(module_.values);
    ddp_.BeforeBackward({output});
    torch::autograd::backward({output}, {gradient_});
    ddp_.AfterBackward();
  }
  const at::Tensor& result() const override { return module_.values.grad(); }
  double expected() const override {
    return sync_ ? SumOfRanks(size_) / size_ : rank_ + 1.0;
  }

 private:
  DistributedDataParallel& ddp_;
  OneParameter& module_;
  const bool sync_;
  const int rank_, size_;
  const at::Tensor gradient_;
};

// The rungs, and what they stand on.
struct Ladder {
  std::unique_ptr<OneParameter> module;
  std::unique_ptr<DistributedDataParallel> ddp;
  std::vector<std::pair<std::string, std::unique_ptr<Rung>>> rungs;
};

absl::StatusOr<std::unique_ptr<Ladder>> Build(Communicator& comm,
                                              Control& control, int64_t count) {
  auto ladder = std::make_unique<Ladder>();
  ladder->module =
      std::make_unique<OneParameter>(at::zeros({count}, comm.device()));
  DdpConfig ddp_config;
  ddp_config.bucket_cap_bytes = ddp_config.first_bucket_bytes =
      std::max<int64_t>(count * sizeof(float), 1);
  auto ddp = DistributedDataParallel::Create(*ladder->module, comm.world(),
                                             ddp_config);
  if (!ddp.ok()) return ddp.status();
  ladder->ddp = *std::move(ddp);

  const GroupPtr& group = comm.process_group();
  const BackendPtr bare =
      WithoutMonitoring(group->getBackend(comm.device().type()));
  const auto type = comm.backend() == "nccl"   ? c10d::ProcessGroup::NCCL
                    : comm.backend() == "gloo" ? c10d::ProcessGroup::GLOO
                                               : c10d::ProcessGroup::CUSTOM;
  auto unmonitored =
      c10::make_intrusive<c10d::ProcessGroup>(comm.rank(), comm.world_size());
  unmonitored->setBackend(comm.device().type(), type, bare);
  unmonitored->setDefaultBackend(type);

  const auto add = [&](const char* name, std::unique_ptr<Rung> rung) {
    ladder->rungs.emplace_back(name, std::move(rung));
  };
  if (comm.backend() == "nccl") {
    auto nccl = ConnectRawNccl(control, {}, comm.device());
    RETURN_IF_ERROR(AllOk(control, nccl.status(), "connect through nccl.h"));
    add("nccl", std::make_unique<RawNcclRung>(*std::move(nccl), comm, count));
  }
  if (comm.backend() != "fake") {  // whose other ranks send nothing
    add("messages", std::make_unique<MessagesRung>(bare, comm, count));
  }
  add("backend",
      std::make_unique<AllReduceRung<c10d::Backend>>(bare, comm, count));
  add("c10d", std::make_unique<AllReduceRung<c10d::ProcessGroup>>(unmonitored,
                                                                  comm, count));
  add("monitored",
      std::make_unique<AllReduceRung<c10d::ProcessGroup>>(group, comm, count));
  for (const bool sync : {false, true}) {
    add(sync ? "reducer" : "backward",
        std::make_unique<ReducerRung>(*ladder->ddp, *ladder->module, sync,
                                      comm));
  }
  return ladder;
}

// Every element of `result`, within what the mean over ranks rounds.
bool IsRight(const at::Tensor& result, double expected) {
  const double tolerance = 1e-5 * std::abs(expected);
  return result.defined() &&
         (result - expected).abs().max().item<double>() <= tolerance;
}

// All ranks run all rungs before any rank gives up.
absl::Status Check(Ladder& ladder, Control& control, c10::Device device) {
  std::string wrong;
  for (auto& [name, rung] : ladder.rungs) {
    rung->Fill();
    rung->Run();
    SynchronizeDevice(device);
    if (wrong.empty() && !IsRight(rung->result(), rung->expected())) {
      wrong = name;
    }
  }
  std::vector<std::string> ranks;
  const double bad = wrong.empty() ? 0 : 1;
  const std::vector<std::vector<double>> all = control.Gather({&bad, 1});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] != 0) ranks.push_back(absl::StrCat(rank));
  }
  if (ranks.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the ladder's sums are wrong on rank ", ranks[0],
      wrong.empty() ? "" : absl::StrCat(": first in rung ", wrong)));
}

// Blocks until the device is done.
double TimeOnDevice(Rung& rung, c10::Device device) {
  const DeviceEvent before(device);
  rung.Run();
  const DeviceEvent after(device);
  SynchronizeDevice(device);
  return WaitForSecondsBetween(before, after);
}

// The iterations index, index + stride, index + 2 stride, ... of `all`.
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

double MeanOf(const Series& series) {
  const std::vector<double> values = Combine(series, Across::kSlowest);
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
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
  ASSIGN_OR_RETURN(auto built, Build(comm, control, count));
  Ladder& ladder = *built;
  const c10::Device device = comm.device();
  RETURN_IF_ERROR(Check(ladder, control, device));
  for (auto& [name, rung] : ladder.rungs) rung->Fill();

  const auto rungs = static_cast<int64_t>(ladder.rungs.size());
  TimingConfig interleaved = config;
  interleaved.iterations =
      (config.iterations > 0 ? config.iterations : 200) * rungs;
  interleaved.warmup = (config.warmup >= 0 ? config.warmup : 20) * rungs;
  double seconds = 0;
  if (events) interleaved.own_seconds = [&seconds] { return seconds; };
  const Series all = TimeIterations(
      control,
      [&](int64_t index) {
        Rung& rung = *ladder.rungs[index % rungs].second;
        if (events) {
          seconds = TimeOnDevice(rung, device);
        } else {
          rung.Run();
          SynchronizeDevice(device);
        }
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
    LadderRung rung;
    rung.name = ladder.rungs[i].first;
    rung.series = EveryNth(all, i, rungs);
    rung.time = Summarize(rung.series, Across::kSlowest);
    rung.mean_seconds = MeanOf(rung.series);
    result.rungs.push_back(std::move(rung));
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
  for (const LadderRung& rung : result.rungs) {
    const std::string adds =
        std::isnan(rung.adds_seconds)
            ? "-"
            : absl::StrFormat("%+.1f", rung.adds_seconds * kMicro);
    const std::string reach =
        std::isnan(rung.adds_reach_seconds)
            ? "-"
            : absl::StrFormat("%.1f", rung.adds_reach_seconds * kMicro);
    absl::StrAppendFormat(
        &text, "  %-10s%9d%10.1f%10.1f%8s%10.1f%10.1f%10.1f%10s%8s\n",
        rung.name, rung.time.samples, rung.time.min * kMicro,
        rung.time.median * kMicro, ReachInPercent(MedianOf(rung.time)),
        rung.time.p95 * kMicro, rung.time.max * kMicro,
        rung.mean_seconds * kMicro, adds, reach);
  }
  return text;
}

}  // namespace rankwise::comm_bench
