// A rank for mpi_test: compares the MPI backend's results with Gloo's.
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ATen/Functions.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/comm/rendezvous.h"
#include "parallel/launch/launcher.h"
#include "parallel/launch/rank_env.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"

ABSL_FLAG(int, nproc, 1, "Ranks to launch.");
ABSL_FLAG(std::string, scenario, "collectives",
          "collectives: all of them, of all types; two_groups: many, mixed");
ABSL_FLAG(int, calls, 300, "Calls in each group of two_groups.");

namespace rankwise {
namespace {

using at::Tensor;
using c10d::Backend;
using c10d::ReduceOp;
using Tensors = std::vector<Tensor>;

// Of small integers: sums and products of some ranks are exact in any type.
Tensor Data(int rank, int64_t count, c10::ScalarType dtype) {
  return (at::arange(count, at::kLong).add_(rank).remainder_(3).fmod_(2) + 1)
      .to(dtype);
}

// What a test compares: a call's results on this rank, given its input.
struct Case {
  const char* name;
  bool reduces;
  std::function<Tensors(Backend&, Tensor, ReduceOp)> run;
};

template <typename Options>
Options With(ReduceOp op) {
  Options options;
  options.reduceOp = op;
  return options;
}

Tensors Empty(const Tensor& like, int count) {
  Tensors tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(at::zeros_like(like));
  return tensors;
}

int LastRank(Backend& backend) { return backend.getSize() - 1; }

Tensors Gather(Backend& backend, Tensor data, ReduceOp) {
  std::vector<Tensors> outputs;
  if (backend.getRank() == LastRank(backend))
    outputs.push_back(Empty(data, backend.getSize()));
  Tensors inputs = {data};
  c10d::GatherOptions options;
  options.rootRank = LastRank(backend);
  backend.gather(outputs, inputs, options)->wait();
  return outputs.empty() ? Tensors() : outputs[0];
}

Tensors Scatter(Backend& backend, Tensor data, ReduceOp) {
  std::vector<Tensors> inputs;
  if (backend.getRank() == LastRank(backend)) {
    inputs.emplace_back();
    for (int i = 0; i < backend.getSize(); ++i) inputs[0].push_back(data + i);
  }
  Tensors outputs = Empty(data, 1);
  c10d::ScatterOptions options;
  options.rootRank = LastRank(backend);
  backend.scatter(outputs, inputs, options)->wait();
  return outputs;
}

// Rank r sends (r + to) % 3 of its parts' rows to rank `to`.
Tensors UnevenAllToAll(Backend& backend, Tensor data, ReduceOp) {
  std::vector<int64_t> sends, receives;
  int64_t sent = 0, received = 0;
  for (int peer = 0; peer < backend.getSize(); ++peer) {
    sends.push_back((backend.getRank() + 2 * peer) % 3);
    receives.push_back((peer + 2 * backend.getRank()) % 3);
    sent += sends.back();
    received += receives.back();
  }
  Tensor input = data.repeat({sent, 1});
  Tensor output = at::zeros({received, data.numel()}, data.options());
  backend.alltoall_base(output, input, receives, sends)->wait();
  return {output};
}

// To the next rank and from the one before.
Tensors PassOn(Backend& backend, Tensor data, ReduceOp) {
  const int size = backend.getSize(), rank = backend.getRank();
  if (size == 1) return {};
  Tensors sent = {data}, received = Empty(data, 1);
  const auto send = backend.send(sent, (rank + 1) % size, /*tag=*/7);
  backend.recv(received, (rank + size - 1) % size, /*tag=*/7)->wait();
  send->wait();
  return received;
}

const std::vector<Case>& Cases() {
  static const auto& cases = *new std::vector<Case>{
      {"all_reduce", true,
       [](Backend& backend, Tensor data, ReduceOp op) {
         Tensors tensors = {data.clone()};
         backend.allreduce(tensors, With<c10d::AllreduceOptions>(op))->wait();
         return tensors;
       }},
      {"reduce", true,
       [](Backend& backend, Tensor data, ReduceOp op) {
         Tensors tensors = {data.clone()};
         auto options = With<c10d::ReduceOptions>(op);
         options.rootRank = LastRank(backend);
         backend.reduce(tensors, options)->wait();
         return backend.getRank() == options.rootRank ? tensors : Tensors();
       }},
      {"reduce_scatter", true,
       [](Backend& backend, Tensor data, ReduceOp op) {
         Tensor input = data.repeat({backend.getSize()});
         Tensor output = at::zeros_like(data);
         backend
             ._reduce_scatter_base(output, input,
                                   With<c10d::ReduceScatterOptions>(op))
             ->wait();
         return Tensors{output};
       }},
      {"broadcast", false,
       [](Backend& backend, Tensor data, ReduceOp) {
         Tensors tensors = {data.clone()};
         c10d::BroadcastOptions options;
         options.rootRank = LastRank(backend);
         backend.broadcast(tensors, options)->wait();
         return tensors;
       }},
      {"all_gather", false,
       [](Backend& backend, Tensor data, ReduceOp) {
         std::vector<Tensors> outputs = {Empty(data, backend.getSize())};
         Tensors inputs = {data};
         backend.allgather(outputs, inputs)->wait();
         return outputs[0];
       }},
      {"all_gather_base", false,
       [](Backend& backend, Tensor data, ReduceOp) {
         Tensor output =
             at::zeros({backend.getSize() * data.numel()}, data.options());
         backend._allgather_base(output, data)->wait();
         return Tensors{output};
       }},
      {"gather", false, Gather},
      {"scatter", false, Scatter},
      {"all_to_all", false,
       [](Backend& backend, Tensor data, ReduceOp) {
         Tensor input = data.repeat({backend.getSize()});
         Tensor output = at::zeros_like(input);
         std::vector<int64_t> equal;
         backend.alltoall_base(output, input, equal, equal)->wait();
         return Tensors{output};
       }},
      {"uneven all_to_all", false, UnevenAllToAll},
      {"send and recv", false, PassOn},
  };
  return cases;
}

void ExpectEqual(const Tensors& got, const Tensors& expected,
                 const std::string& what) {
  TORCH_CHECK(got.size() == expected.size(), what, ": not as many results");
  for (size_t i = 0; i < got.size(); ++i) {
    TORCH_CHECK(got[i].equal(expected[i]), what, ": result ", i, " differs");
  }
}

void CompareCollectives(Backend& mpi, Backend& gloo) {
  for (const Case& each : Cases()) {
    for (const auto dtype :
         {c10::kFloat, c10::kDouble, c10::kHalf, c10::kBFloat16, c10::kChar,
          c10::kByte, c10::kInt, c10::kLong}) {
      for (const auto op :
           {ReduceOp::SUM, ReduceOp::PRODUCT, ReduceOp::MIN, ReduceOp::MAX}) {
        if (!each.reduces && op != ReduceOp::SUM) continue;
        for (const int64_t count : {1, 7, 40000}) {
          const Tensor data = Data(mpi.getRank(), count, dtype);
          ExpectEqual(each.run(mpi, data, op), each.run(gloo, data, op),
                      absl::StrCat(each.name, " of ", count, " ",
                                   c10::toString(dtype), ", op ", op));
        }
      }
    }
  }
}

// What Gloo has not, or not in place: against what the others gave.
void CheckVariants(Backend& mpi) {
  const int size = mpi.getSize(), rank = mpi.getRank();
  const Tensor data = Data(rank, 1000, c10::kFloat);
  const Tensor all = at::zeros({size, 1000});
  Tensor flat = all.view({-1}), own = all[rank];
  own.copy_(data);
  mpi._allgather_base(flat, own)->wait();
  for (int peer = 0; peer < size; ++peer) {
    ExpectEqual({all[peer]}, {Data(peer, 1000, c10::kFloat)},
                "all_gather in place");
  }
  const Tensor sum = all.sum(0);
  Tensors coalesced = {data.clone(), data * 2};
  mpi.allreduce_coalesced(coalesced)->wait();
  ExpectEqual(coalesced, {sum, sum * 2}, "all_reduce_coalesced");

  std::vector<Tensors> lists = {Tensors()};
  for (int peer = 0; peer < size; ++peer) lists[0].push_back(data + peer);
  Tensors part = Empty(data, 1);
  mpi.reduce_scatter(part, lists)->wait();
  ExpectEqual(part, {sum + rank * size}, "reduce_scatter of a list");
  Tensor whole = data.repeat({size});
  Tensor inside = whole.narrow(0, rank * 1000, 1000);
  mpi._reduce_scatter_base(inside, whole)->wait();
  ExpectEqual({inside}, {sum}, "reduce_scatter in place");
  Tensors received = Empty(data, size);
  mpi.alltoall(received, lists[0])->wait();
  for (int peer = 0; peer < size; ++peer) {
    ExpectEqual({received[peer]}, {Data(peer, 1000, c10::kFloat) + rank},
                "all_to_all of a list");
  }
}

void CheckAnySource(Backend& mpi) {
  Tensors message = {at::full({3}, mpi.getRank() + 0.5)};
  if (mpi.getRank() > 0) {
    mpi.send(message, 0, /*tag=*/3)->wait();
    return;
  }
  for (int i = 1; i < mpi.getSize(); ++i) {
    const auto work = mpi.recvAnysource(message, /*tag=*/3);
    work->wait();
    ExpectEqual(message, {at::full({3}, work->sourceRank() + 0.5)},
                "recv from any rank");
  }
}

// A future ends without anybody waiting for the work, and holds the result.
void CheckFuture(Backend& mpi) {
  Tensors tensors = {at::full({100000}, 1.0)};
  const auto future = mpi.allreduce(tensors)->getFuture();
  future->wait();
  ExpectEqual(future->value().toTensorVector(),
              {at::full({100000}, static_cast<double>(mpi.getSize()))},
              "the future of an all_reduce");
}

void ExpectRefused(const char* part, const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    const std::string text = PlainMessage(error);
    TORCH_CHECK(text.find(part) != std::string::npos, "refused by: ", text);
    return;
  }
  TORCH_CHECK(false, "not refused: ", part);
}

void CheckRefusals(Backend& mpi) {
  Tensors tensors = {at::ones({4})};
  ExpectRefused("sum, product, min and max only", [&] {
    mpi.allreduce(tensors, With<c10d::AllreduceOptions>(ReduceOp::AVG));
  });
  Tensors transposed = {at::ones({4, 3}).t()};
  ExpectRefused("must be contiguous", [&] { mpi.send(transposed, 0, 0); });
  Tensors strided = {at::ones({4, 3}).select(1, 0)};
  ExpectRefused("must be dense", [&] { mpi.allreduce(strided); });
}

// Calls that all ranks choose alike, some in flight at the same time.
void MixCalls(Backend& mpi, Backend& reference, int calls, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::pair<c10::intrusive_ptr<c10d::Work>, Tensors>> in_flight;
  const double sum = mpi.getSize() * (mpi.getSize() + 1) / 2.0;
  const auto finish = [&](auto& entry) {
    entry.first->wait();
    for (const Tensor& tensor : entry.second) {
      TORCH_CHECK(tensor.eq(sum).all().template item<bool>(),
                  "a sum of two_groups is wrong");
    }
  };
  for (int i = 0; i < calls; ++i) {
    const auto count = static_cast<int64_t>(random() % 20000 + 1);
    const auto kind = random() % 10;
    if (kind < 6) {
      Tensors tensors = {at::full({count}, mpi.getRank() + 1.0)};
      in_flight.emplace_back(mpi.allreduce(tensors), tensors);
    } else if (kind == 6) {
      in_flight.emplace_back(mpi.barrier(), Tensors());
    } else {
      const Case& each = Cases()[random() % Cases().size()];
      const Tensor data = Data(mpi.getRank(), count % 100 + 1, c10::kBFloat16);
      const Tensors got = each.run(mpi, data, ReduceOp::SUM);
      if (i % 50 == 0)
        ExpectEqual(got, each.run(reference, data, ReduceOp::SUM), each.name);
    }
    while (in_flight.size() > random() % 8) {
      finish(in_flight.front());
      in_flight.erase(in_flight.begin());
    }
  }
  for (auto& entry : in_flight) finish(entry);
}

absl::StatusOr<BackendPtr> Make(const char* name, const RankEnv& env,
                                const std::vector<int>& ranks,
                                const std::string& group,
                                const StoreConnection& connection) {
  BackendRequest request;
  request.env = env;
  const auto own = std::find(ranks.begin(), ranks.end(), env.rank);
  request.place = {group, ranks, static_cast<int>(own - ranks.begin())};
  request.store = c10::make_intrusive<c10d::PrefixStore>(
      absl::StrCat(name, "/", group), connection.store);
  return FindBackend(name)->make(request);
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const RankEnv env, ReadRankEnv());
  ASSIGN_OR_RETURN(const StoreConnection connection,
                   Rendezvous(env, {absl::Seconds(60), ""}));
  std::vector<int> ranks, reversed;
  for (int rank = 0; rank < env.world_size; ++rank) {
    ranks.push_back(rank);
    reversed.insert(reversed.begin(), rank);
  }
  ASSIGN_OR_RETURN(const auto gloo, Make("gloo", env, ranks, "", connection));
  ASSIGN_OR_RETURN(const auto mpi, Make("mpi", env, ranks, "", connection));
  if (absl::GetFlag(FLAGS_scenario) == "collectives") {
    CompareCollectives(*mpi, *gloo);
    CheckVariants(*mpi);
    CheckAnySource(*mpi);
    CheckFuture(*mpi);
    CheckRefusals(*mpi);
  } else {
    ASSIGN_OR_RETURN(const auto other_mpi,
                     Make("mpi", env, reversed, "other", connection));
    ASSIGN_OR_RETURN(const auto other_gloo,
                     Make("gloo", env, reversed, "other", connection));
    const int calls = absl::GetFlag(FLAGS_calls);
    std::exception_ptr failure;
    std::thread other([&] {
      try {
        MixCalls(*other_mpi, *other_gloo, calls, /*seed=*/2);
      } catch (const std::exception&) {
        failure = std::current_exception();
      }
    });
    MixCalls(*mpi, *gloo, calls, /*seed=*/1);
    other.join();
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  mpi->barrier()->wait();
  printf("all results are right\n");
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  rankwise::PrepareRankProcess();
  if (absl::GetFlag(FLAGS_nproc) > 1 && !rankwise::InsideLauncher()) {
    rankwise::LaunchConfig config;
    config.nproc = absl::GetFlag(FLAGS_nproc);
    config.serves_pmix = true;
    return rankwise::LaunchRanks(config, argc, argv);
  }
  try {
    const absl::Status status = rankwise::Run();
    if (status.ok()) return 0;
    fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  } catch (const std::exception& error) {
    fprintf(stderr, "%s\n", rankwise::PlainMessage(error).c_str());
  }
  return 1;
}
