#include "parallel/parameter_server/server.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "ATen/Functions.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/test_ranks.h"
#include "parallel/parameter_server/client.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr double kRate = 0.25;

// Shapes that no number of servers divides.
std::vector<NamedTensor> MakeParameters() {
  return {{"a", at::arange(15, at::kFloat).view({5, 3}).clone()},
          {"b", at::ones({4})},
          {"c", at::full({2, 2}, -3.0, at::kFloat)}};
}

// Returns the parameter values towards which worker `worker` trains.
at::Tensor Target(const at::Tensor& parameter, int worker) {
  return at::full_like(parameter, 10 * (worker + 1));
}

struct Seen {
  std::vector<NamedTensor> parameters;  // at the end, on the first server
  std::vector<UpdateRecord> updates;    // of the first server
  std::vector<ServedStep> steps;        // of the first server, without updates
  std::vector<double> rates;
  std::vector<std::pair<int, int>> lost;
  at::Tensor buffer = at::full({2}, 7.0, at::kFloat);
  std::string error;
};

using WorkerBody =
    std::function<void(int worker, ParameterClient& client,
                       std::vector<NamedTensor>& parameters, Link& link)>;

// As OnRanks, with the timeout of `config`.
void OnRanksOf(int world_size, const ParameterServerConfig& config,
               const std::function<void(Communicator&)>& body) {
  static int jobs = 0;
  const std::string store =
      absl::StrCat(testing::TempDir(), "/job", jobs++, ".store");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string error = ErrorOf([&] {
        body(*ConnectRank(rank, world_size, store, config.collective_timeout));
      });
      EXPECT_EQ(error, "") << "on rank " << rank;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Runs servers that apply plain SGD until `steps` are complete, and workers
// that run `body`, which also leaves the job. `on_lost` is called on the first
// server when it has lost a worker, `before_step` on every server.
Seen RunJob(
    int servers, int workers, const ParameterServerConfig& config,
    int64_t steps, const WorkerBody& body,
    const std::function<void()>& on_lost = [] {},
    const std::function<void(int server, int64_t step)>& before_step =
        [](int, int64_t) {}) {
  Seen seen;
  OnRanksOf(servers + workers, config, [&](Communicator& comm) {
    auto ranks = ConnectServers(comm, servers);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    std::vector<NamedTensor> parameters = MakeParameters();
    const ShardLayout layout(parameters, servers, config.bucket_bytes);
    const bool first = comm.rank() == 0;
    if (comm.rank() >= servers) {
      const int worker = comm.rank() - servers;
      at::Tensor buffer = at::full({2}, -1.0, at::kFloat);
      for (const NamedTensor& each : parameters) each.tensor.zero_();
      ParameterClient client(layout, ranks->links, {{"buffer", buffer}});
      body(worker, client, parameters, ranks->links[0]);
      return;
    }
    at::Tensor buffer = first ? seen.buffer : at::zeros({2});
    ParameterServer server(config, layout, comm.rank(), ranks->links,
                           {{"buffer", buffer}});
    server.Serve(
        [&](double rate) {
          if (first) seen.rates.push_back(rate);
          for (const auto& [rows, begin] : server.rows()) {
            if (rows.defined()) rows.sub_(rows.grad(), rate);
          }
        },
        [&](int rank, int others) {
          if (!first) return;
          seen.lost.emplace_back(rank, others);
          on_lost();
        },
        {});
    for (int64_t step = 1; step <= steps; ++step) {
      ServedStep served;
      before_step(comm.rank(), step);
      const std::string error = ErrorOf([&] { served = server.FinishStep(); });
      if (!first) continue;
      seen.steps.push_back(served);
      seen.updates.insert(seen.updates.end(), served.updates.begin(),
                          served.updates.end());
      if (!error.empty()) seen.error = error;
    }
    if (!seen.error.empty()) return;
    server.GatherParameters(ranks->own);
    if (first) seen.parameters = parameters;
    server.Finish();
  });
  return seen;
}

// Runs one step of a worker, with the gradient of half the squared distance.
void Step(int worker, ParameterClient& client,
          std::vector<NamedTensor>& parameters) {
  client.AwaitAll();
  for (NamedTensor& each : parameters)
    each.tensor.mutable_grad() = each.tensor - Target(each.tensor, worker);
  client.PushGradients(
      {.learning_rate = kRate, .loss = 1.0 + worker, .examples = 4});
}

WorkerBody Steps(int64_t rounds) {
  return [rounds](int worker, ParameterClient& client,
                  std::vector<NamedTensor>& parameters, Link&) {
    client.Begin();
    for (int64_t i = 0; i < rounds; ++i) Step(worker, client, parameters);
    client.Finish();
  };
}

ParameterServerConfig Config(const std::string& consistency) {
  ParameterServerConfig config;
  config.consistency = *ParseConsistency(consistency);
  config.bucket_bytes = 20;
  config.collective_timeout = absl::Seconds(60);
  return config;
}

int64_t Count(const Seen& seen) {
  return static_cast<int64_t>(seen.updates.size());
}

int64_t StaleRounds(const UpdateRecord& update) {
  return update.round - 1 - update.read_round;
}

TEST(ParseConsistencyTest, KnowsThreeKinds) {
  EXPECT_TRUE(ParseConsistency("bsp")->synchronous);
  EXPECT_TRUE(ParseConsistency("ssp:0")->synchronous);
  EXPECT_EQ(ParseConsistency("ssp:3")->bound, 3);
  EXPECT_FALSE(ParseConsistency("ssp:3")->synchronous);
  EXPECT_FALSE(ParseConsistency("async")->synchronous);
  for (const char* bad : {"", "ssp", "ssp:", "ssp:-1", "ssp:x", "sync", "BSP",
                          "ssp:99999999999999999999"}) {
    EXPECT_FALSE(ParseConsistency(bad).ok()) << bad;
  }
}

TEST(ShardLayoutTest, ServersTogetherHaveEveryRowOnce) {
  for (int servers = 1; servers <= 6; ++servers) {
    for (int64_t bytes : {1, 20, 70, 1000}) {
      std::vector<NamedTensor> parameters = MakeParameters();
      const ShardLayout layout(parameters, servers, bytes);
      EXPECT_EQ(layout.buckets(), bytes == 1 ? 3u : bytes == 1000 ? 1u : 2u);
      EXPECT_EQ(layout.BucketOf(2), layout.buckets() - 1);
      const std::vector<NamedTensor> before = MakeParameters();
      std::vector<std::vector<at::Tensor>> memory;
      for (int server = 0; server < servers; ++server) {
        memory.push_back(layout.Allocate(server));
        for (size_t i = 0; i < layout.buckets(); ++i)
          layout.FromParameters(server, i, memory.back()[i]);
      }
      for (NamedTensor& each : parameters) each.tensor.fill_(-1);
      for (int server = 0; server < servers; ++server) {
        for (size_t i = 0; i < layout.buckets(); ++i)
          layout.ToParameters(server, i, memory[server][i]);
      }
      for (size_t i = 0; i < parameters.size(); ++i)
        EXPECT_TRUE(parameters[i].tensor.equal(before[i].tensor));
    }
  }
}

TEST(ShardLayoutTest, AcceptsEmptyParametersAndRejectsScalars) {
  const ShardLayout layout({{"empty", at::zeros({0, 3})}}, 2, 100);
  EXPECT_EQ(layout.Allocate(0)[0].numel(), 0);
  try {
    ShardLayout({{"scale", at::zeros({})}}, 2, 100);
    FAIL() << "accepted a scalar";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("scale is a scalar"));
  }
}

TEST(ParameterServerTest, BspIsGradientDescentOnTheMean) {
  constexpr int64_t kRounds = 5;
  for (const auto& [servers, workers] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 3}, {2, 2}, {3, 1}}) {
    std::vector<NamedTensor> expected = MakeParameters();
    for (int64_t i = 0; i < kRounds; ++i) {
      for (NamedTensor& each : expected) {
        at::Tensor sum = each.tensor - Target(each.tensor, 0);
        for (int worker = 1; worker < workers; ++worker)
          sum.add_(each.tensor - Target(each.tensor, worker));
        each.tensor.sub_(sum.div_(workers), kRate);
      }
    }
    for (const char* consistency : {"bsp", "ssp:0"}) {
      const Seen seen = RunJob(servers, workers, Config(consistency), kRounds,
                               Steps(kRounds));
      ASSERT_EQ(seen.parameters.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(seen.parameters[i].tensor.equal(expected[i].tensor))
            << servers << " servers, " << workers << " workers";
      }
      ASSERT_EQ(Count(seen), kRounds * workers);
      for (size_t i = 0; i < seen.updates.size(); ++i) {
        const UpdateRecord& update = seen.updates[i];
        const auto round = static_cast<int64_t>(i) / workers + 1;
        EXPECT_EQ(update.worker, servers + static_cast<int64_t>(i) % workers);
        EXPECT_EQ(update.round, round);
        EXPECT_EQ(update.version, round);
        EXPECT_EQ(update.read_version, round - 1);
        EXPECT_EQ(StaleRounds(update), 0);
      }
      // The servers' buffers reached the workers and came back.
      EXPECT_TRUE(seen.buffer.equal(at::full({2}, 7.0, at::kFloat)));
    }
  }
}

TEST(ParameterServerTest, SspNeverExceedsItsBound) {
  constexpr int64_t kRounds = 20;
  for (int64_t bound : {1, 2, 4}) {
    const Seen seen =
        RunJob(2, 3, Config(absl::StrCat("ssp:", bound)), kRounds,
               [](int worker, ParameterClient& client,
                  std::vector<NamedTensor>& parameters, Link&) {
                 client.Begin();
                 for (int64_t i = 0; i < kRounds; ++i) {
                   if (worker == 2)  // a straggler
                     std::this_thread::sleep_for(std::chrono::milliseconds(3));
                   Step(/*worker=*/1, client, parameters);
                 }
                 client.Finish();
               });
    ASSERT_EQ(Count(seen), 3 * kRounds);
    int64_t version = 0;
    for (const UpdateRecord& update : seen.updates) {
      EXPECT_LE(StaleRounds(update), bound);
      EXPECT_GE(StaleRounds(update), 0);
      EXPECT_EQ(update.version, ++version);
    }
    // The target is the same, so training converges despite staleness.
    for (const NamedTensor& each : seen.parameters) {
      const double distance =
          (each.tensor - Target(each.tensor, 1)).abs().max().item<double>();
      EXPECT_LT(distance, 0.5) << "bound " << bound;
    }
  }
}

// The second worker pulls, but pushes only after the first has finished.
Seen OneFarBehind(const ParameterServerConfig& config, int64_t rounds) {
  std::promise<void> read, finished;
  return RunJob(1, 2, config, rounds,
                [&, rounds](int worker, ParameterClient& client,
                            std::vector<NamedTensor>& parameters, Link&) {
                  client.Begin();
                  if (worker == 1) {
                    read.set_value();
                    finished.get_future().wait();
                  } else {
                    read.get_future().wait();
                  }
                  for (int64_t i = 0; i < rounds; ++i)
                    Step(worker, client, parameters);
                  client.Finish();
                  if (worker == 0) finished.set_value();
                });
}

TEST(ParameterServerTest, AsyncHasNoBoundAndCountsStaleness) {
  constexpr int64_t kRounds = 6;
  const Seen seen = OneFarBehind(Config("async"), kRounds);
  ASSERT_EQ(Count(seen), 2 * kRounds);
  for (int64_t i = 0; i < kRounds; ++i) {
    EXPECT_EQ(seen.updates[i].worker, 1);
    EXPECT_EQ(StaleRounds(seen.updates[i]), i);
    EXPECT_EQ(seen.rates[i], kRate / 2);            // divided by two workers
    EXPECT_EQ(seen.rates[kRounds + i], kRate / 2);  // although one has finished
  }
  EXPECT_EQ(seen.updates[kRounds].worker, 2);
  EXPECT_EQ(seen.updates[kRounds].read_version, 0);
  EXPECT_EQ(seen.updates[kRounds].version, kRounds + 1);
}

TEST(ParameterServerTest, SspLetsAWorkerGetAheadByItsBound) {
  constexpr int64_t kBound = 4;
  const Seen seen =
      OneFarBehind(Config(absl::StrCat("ssp:", kBound)), /*rounds=*/kBound);
  ASSERT_EQ(Count(seen), 2 * kBound);
  for (int64_t i = 0; i < kBound; ++i) {
    EXPECT_EQ(seen.updates[i].worker, 1);
    EXPECT_EQ(StaleRounds(seen.updates[i]), i);
  }
}

TEST(ParameterServerTest, ScalesTheRateByStaleness) {
  constexpr int64_t kRounds = 6;
  ParameterServerConfig config = Config("async");
  config.scale_by_staleness = true;
  const Seen seen = OneFarBehind(config, kRounds);
  ASSERT_EQ(seen.rates.size(), 2u * kRounds);
  EXPECT_EQ(seen.rates[0], kRate);
  EXPECT_EQ(seen.rates[kRounds], kRate / (1 + kRounds));
  EXPECT_EQ(seen.rates[kRounds + 1], kRate);
}

TEST(ParameterServerTest, ALostWorkerIsLeftOutAndTheOthersContinue) {
  constexpr int64_t kRounds = 6;
  for (const char* consistency : {"bsp", "ssp:1"}) {
    const Seen seen =
        RunJob(1, 3, Config(consistency), kRounds,
               [](int worker, ParameterClient& client,
                  std::vector<NamedTensor>& parameters, Link& link) {
                 client.Begin();
                 for (int64_t i = 0; i < kRounds; ++i) {
                   if (worker == 1 && i == 2) {
                     client.AwaitAll();
                     link.Abort();
                     return;
                   }
                   Step(worker, client, parameters);
                 }
                 client.Finish();
               });
    EXPECT_EQ(seen.error, "") << consistency;
    EXPECT_EQ(Count(seen), 2 * kRounds + 2) << consistency;
    EXPECT_THAT(seen.lost, ElementsAre(Pair(2, 2))) << consistency;
  }
}

TEST(ParameterServerTest, TheLastWorkerIsReportedWhereTheOthersHaveFinished) {
  // Under bsp the second worker passes round 2 only after the server has
  // registered that the first one has finished.
  const Seen seen =
      RunJob(1, 2, Config("bsp"), /*rounds=*/4,
             [](int worker, ParameterClient& client,
                std::vector<NamedTensor>& parameters, Link& link) {
               client.Begin();
               for (int i = 0; i < 2 + worker; ++i)
                 Step(worker, client, parameters);
               if (worker == 0) {
                 client.Finish();
               } else {
                 client.AwaitAll();
                 link.Abort();
               }
             });
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(Count(seen), 2 + 3);
  EXPECT_THAT(seen.lost, ElementsAre(Pair(2, 0)));
}

TEST(ParameterServerTest, WithoutWorkersItFails) {
  const Seen seen = RunJob(
      1, 2, Config("bsp"), 1,
      [](int, ParameterClient& client, std::vector<NamedTensor>&, Link& link) {
        client.Begin();
        link.Abort();
      });
  EXPECT_NE(seen.error, "");
  EXPECT_TRUE(seen.updates.empty());
}

TEST(ParameterServerTest, MovesAreAveraged) {
  ParameterServerConfig config = Config("bsp");
  const Seen seen = RunJob(
      2, 2, config, /*steps=*/2,
      [](int worker, ParameterClient& client,
         std::vector<NamedTensor>& parameters, Link&) {
        client.Begin();
        for (NamedTensor& each : parameters)
          each.tensor.copy_(Target(each.tensor, worker));
        client.EndStep({.loss = 2.0 + worker, .examples = 8});
        client.PushDifference({.learning_rate = 1, .loss = 0, .examples = 8});
        client.AwaitAll();
        for (NamedTensor& each : parameters)  // mean of 10 and 20
          EXPECT_TRUE(each.tensor.allclose(at::full_like(each.tensor, 15)));
        client.Finish();
      });
  for (const NamedTensor& each : seen.parameters)
    EXPECT_TRUE(each.tensor.allclose(at::full_like(each.tensor, 15)));
  // Each step has its own loss; an update has the mean since the last push.
  ASSERT_EQ(seen.steps.size(), 2u);
  EXPECT_EQ(seen.steps[0].loss, 2.5);
  EXPECT_EQ(seen.steps[1].loss, 0);
  EXPECT_EQ(seen.steps[0].examples + seen.steps[1].examples, 4 * 8);
  ASSERT_EQ(Count(seen), 2);
  EXPECT_EQ(seen.updates[0].loss, 1);
  EXPECT_EQ(seen.updates[1].loss, 1.5);
}

// The first worker waits longer than its timeout for the second, which runs
// several steps before its push.
TEST(ParameterServerTest, AWorkerThatWaitsHearsFromItsServers) {
  ParameterServerConfig config = Config("bsp");
  config.collective_timeout = absl::Seconds(2);
  const Seen seen =
      RunJob(2, 2, config, /*steps=*/1,
             [](int worker, ParameterClient& client,
                std::vector<NamedTensor>& parameters, Link&) {
               client.Begin();
               for (int i = 0; worker == 1 && i < 6; ++i) {
                 std::this_thread::sleep_for(std::chrono::milliseconds(500));
                 client.EndStep({.loss = 1, .examples = 4});
               }
               Step(/*worker=*/1, client, parameters);
               client.Finish();
             });
  EXPECT_TRUE(seen.lost.empty());
  const std::vector<NamedTensor> start = MakeParameters();
  ASSERT_EQ(seen.parameters.size(), start.size());
  for (size_t i = 0; i < start.size(); ++i) {
    const at::Tensor target = Target(start[i].tensor, 1);
    EXPECT_TRUE(seen.parameters[i].tensor.allclose(
        target + (start[i].tensor - target) * (1 - kRate)));
  }
}

// One server makes the worker wait longer than the timeout; the other has
// replied and waits for the worker's next push.
TEST(ParameterServerTest, AWorkerThatOneServerHoldsUpIsNotLostToTheOther) {
  ParameterServerConfig config = Config("bsp");
  config.collective_timeout = absl::Seconds(2);
  for (const int slow : {0, 1}) {
    const Seen seen = RunJob(
        2, 1, config, /*steps=*/2, Steps(2), /*on_lost=*/[] {},
        [slow](int server, int64_t step) {
          if (server == slow && step == 1)
            std::this_thread::sleep_for(std::chrono::seconds(3));
        });
    EXPECT_EQ(seen.error, "") << "server " << slow << " is slow";
    EXPECT_EQ(Count(seen), 2) << "server " << slow << " is slow";
  }
}

// The first server makes the worker wait, as during a checkpoint; the second
// has stopped after its first reply.
TEST(ParameterServerTest, AWorkerNoticesASilentServerWhileAnotherHoldsItUp) {
  ParameterServerConfig config = Config("bsp");
  config.collective_timeout = absl::Seconds(2);
  std::promise<absl::Duration> failed;
  std::shared_future<absl::Duration> after = failed.get_future();
  OnRanksOf(3, config, [&](Communicator& comm) {
    auto ranks = ConnectServers(comm, /*servers=*/2);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    std::vector<NamedTensor> parameters = MakeParameters();
    const ShardLayout layout(parameters, 2, config.bucket_bytes);
    const auto await_failure = [&] {
      after.wait_for(absl::ToChronoSeconds(4 * config.collective_timeout));
    };
    if (comm.rank() == 0) {
      ParameterServer server(config, layout, 0, ranks->links, {});
      server.Serve([](double) {}, [](int, int) {}, {});
      await_failure();
    } else if (comm.rank() == 1) {
      Link& worker = ranks->links[0];
      std::vector<WorkPtr> works;
      worker.Receive(EmptyHeader(), kHeaderTag, works);
      WaitFor(works);
      worker.Send(ToHeader(Reply{}), kHeaderTag, works);
      int tag = kFirstBucketTag;
      for (const at::Tensor& bucket : layout.Allocate(1))
        worker.Send(bucket, tag++, works);
      WaitFor(works);
      await_failure();
    } else {
      ParameterClient client(layout, ranks->links, {});
      client.Begin();
      Step(/*worker=*/0, client, parameters);
      const SteadyTime start = SteadyNow();
      EXPECT_NE(ErrorOf([&] { client.AwaitAll(); }), "");
      failed.set_value(ElapsedSince(start));
    }
  });
  EXPECT_LT(after.get(), 2 * config.collective_timeout);
}

// The first worker's connection breaks while the server neither sends to it nor
// expects a message from it.
TEST(ParameterServerTest, AWorkerThatDiesWhileItWaitsIsReportedAtOnce) {
  std::promise<void> lost;
  const Seen seen = RunJob(
      1, 2, Config("bsp"), /*steps=*/2,
      [&](int worker, ParameterClient& client,
          std::vector<NamedTensor>& parameters, Link& link) {
        client.Begin();
        if (worker == 0) {
          Step(worker, client, parameters);
          // Waits until the server has received the push.
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          link.Abort();
          return;
        }
        EXPECT_EQ(lost.get_future().wait_for(std::chrono::seconds(10)),
                  std::future_status::ready);
        for (int i = 0; i < 2; ++i) Step(worker, client, parameters);
        client.Finish();
      },
      [&] { lost.set_value(); });
  EXPECT_EQ(seen.error, "");
  EXPECT_THAT(seen.lost, ElementsAre(Pair(1, 1)));
}

// The first worker completes five steps before the second completes its last
// one and is lost.
TEST(ParameterServerTest, StepsThatTheOthersDidMeanwhileTakeTheirOwnTime) {
  constexpr int64_t kSteps = 5;
  constexpr double kStepSeconds = 0.03;
  for (const int64_t of_lost : {0, 1, 2}) {
    std::promise<void> done;
    const Seen seen = RunJob(
        1, 2, Config("async"), kSteps,
        [&](int worker, ParameterClient& client,
            std::vector<NamedTensor>& parameters, Link& link) {
          client.Begin();
          if (worker == 1) done.get_future().wait();
          for (int64_t i = 0; i < (worker == 1 ? of_lost : kSteps); ++i) {
            client.AwaitAll();
            std::this_thread::sleep_for(
                std::chrono::duration<double>(kStepSeconds));
            Step(/*worker=*/static_cast<int>(i), client, parameters);
          }
          client.AwaitAll();
          if (worker == 1) {
            link.Abort();
            return;
          }
          done.set_value();
          client.Finish();
        });
    ASSERT_EQ(seen.steps.size(), static_cast<size_t>(kSteps));
    int64_t examples = 0;
    for (int64_t i = 0; i < kSteps; ++i) {
      const ServedStep& step = seen.steps[static_cast<size_t>(i)];
      EXPECT_EQ(step.loss, 1.0 + static_cast<double>(i));
      examples += step.examples;
      if (i < of_lost) continue;  // the server may have waited for its end
      ASSERT_TRUE(step.seconds.has_value());
      EXPECT_GT(*step.seconds, 0.3 * kStepSeconds) << i << " of " << of_lost;
    }
    EXPECT_EQ(examples, 4 * (kSteps + of_lost));
  }
}

TEST(ParameterServerTest, ElasticWorkersAndServersMoveTowardsEachOther) {
  const std::vector<NamedTensor> start = MakeParameters();
  const Seen seen =
      RunJob(1, 2, Config("bsp"), 1,
             [&start](int worker, ParameterClient& client,
                      std::vector<NamedTensor>& parameters, Link&) {
               client.Begin();
               for (NamedTensor& each : parameters)
                 each.tensor.copy_(Target(each.tensor, worker));
               client.PushDifference({.learning_rate = 0.5, .loss = 0},
                                     /*attraction=*/0.25);
               client.AwaitAll();
               for (size_t i = 0; i < parameters.size(); ++i) {
                 const at::Tensor mine = Target(start[i].tensor, worker);
                 EXPECT_TRUE(parameters[i].tensor.allclose(
                     mine - 0.25 * (mine - start[i].tensor)));
               }
               client.Finish();
             });
  for (size_t i = 0; i < start.size(); ++i) {
    const at::Tensor& center = start[i].tensor;
    EXPECT_TRUE(seen.parameters[i].tensor.allclose(
        center + 0.5 * (at::full_like(center, 15) - center)));
  }
}

}  // namespace
}  // namespace rankwise
