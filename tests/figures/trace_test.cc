// Tests the output of --trace of real runs.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using Json = nlohmann::json;

// of times in microseconds rounded to nanoseconds
constexpr double kRounding = 0.01;

struct Bar {
  int process = 0;
  std::string lane, name, category;
  double start = 0, end = 0;  // us
  Json args;

  bool Holds(const Bar& other) const {
    return other.start >= start - kRounding && other.end <= end + kRounding;
  }
};

struct Trace {
  std::map<int, std::string> processes;
  std::map<int, std::set<std::string>> lanes;  // by process
  std::vector<Bar> bars;

  std::vector<Bar> Of(int process, const std::string& category) const {
    std::vector<Bar> found;
    for (const Bar& bar : bars) {
      if (bar.process == process && bar.category == category)
        found.push_back(bar);
    }
    return found;
  }
};

Trace ReadTrace(const std::string& path) {
  Trace trace;
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, false);
  EXPECT_TRUE(json.is_object()) << path;
  if (!json.is_object()) return trace;
  std::map<std::pair<int, int>, std::string> rows;
  for (const Json& event : json["traceEvents"]) {
    const int process = event["pid"];
    if (event["name"] == "process_name")
      trace.processes[process] = event["args"]["name"];
    if (event["name"] != "thread_name") continue;
    rows[{process, event["tid"]}] = event["args"]["name"];
    trace.lanes[process].insert(event["args"]["name"].get<std::string>());
  }
  for (const Json& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double start = event["ts"];
    trace.bars.push_back({event["pid"], rows.at({event["pid"], event["tid"]}),
                          event["name"], event["cat"], start,
                          start + event["dur"].get<double>(), event["args"]});
  }
  return trace;
}

Flags With(const Flags& more) {
  return Joined({"--train_size=96", "--test_size=4", "--batch_size=4",
                 "--epochs=1", "--eval=false"},
                more);
}

// Runs the trainer and reads the trace. Checks that its folder contains nothing
// else.
Trace TraceOf(const std::string& trainer, const Flags& flags) {
  const std::string dir = FreshDir("trace");
  const Finished run = RunTrainer(
      trainer, With(Joined(flags, {"--trace=" + dir + "/steps.json"})));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err.find("ERROR"), std::string::npos) << run.err;
  EXPECT_NE(run.out.find("for ui.perfetto.dev: "), std::string::npos)
      << run.out;
  int files = 0;
  for ([[maybe_unused]] const auto& file :
       std::filesystem::directory_iterator(dir))
    ++files;
  EXPECT_EQ(files, 1);
  return ReadTrace(dir + "/steps.json");
}

std::vector<std::string> NamesOf(const std::vector<Bar>& bars) {
  std::vector<std::string> names;
  for (const Bar& bar : bars) names.push_back(bar.name);
  return names;
}

// Checks that every phase, message and action is within a step of its rank, and
// that steps do not overlap.
void ExpectNested(const Trace& trace, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<Bar> steps = trace.Of(rank, "step");
    ASSERT_FALSE(steps.empty()) << "rank " << rank;
    for (size_t i = 0; i + 1 < steps.size(); ++i)
      EXPECT_LE(steps[i].end, steps[i + 1].start + kRounding);
    for (const Bar& bar : trace.bars) {
      if (bar.process != rank) continue;
      EXPECT_GE(bar.start, -kRounding);
      EXPECT_TRUE(std::any_of(steps.begin(), steps.end(),
                              [&](const Bar& step) { return step.Holds(bar); }))
          << bar.name << " of rank " << rank << " from " << bar.start << " to "
          << bar.end;
    }
  }
}

const std::set<std::string> kLanes = {"communication", "compute", "data"};

TEST(TraceTest, OneProcess) {
  const Trace trace = TraceOf("single", {"--trace_steps=2"});
  ASSERT_EQ(trace.processes.size(), 1u);
  EXPECT_EQ(trace.processes.at(0).rfind("rank 0 · ", 0), 0u);
  EXPECT_EQ(trace.lanes.at(0), kLanes);
  EXPECT_EQ(NamesOf(trace.Of(0, "step")),
            (std::vector<std::string>{"step 3", "step 4"}));
  const std::vector<std::string> step = {"data wait", "forward", "backward",
                                         "optimizer"};
  std::vector<std::string> phases = step;
  phases.insert(phases.end(), step.begin(), step.end());
  EXPECT_EQ(NamesOf(trace.Of(0, "phase")), phases);
  ExpectNested(trace, 1);
}

TEST(TraceTest, CollectivesOfAllRanksOverlap) {
  const Trace trace = TraceOf("ddp", {"--nproc=2", "--bucket_cap_mb=1"});
  ASSERT_EQ(trace.processes.size(), 2u);
  for (int rank : {0, 1}) {
    const std::set<std::string>& lanes = trace.lanes.at(rank);
    EXPECT_TRUE(std::includes(lanes.begin(), lanes.end(), kLanes.begin(),
                              kLanes.end()));
    EXPECT_EQ(trace.Of(rank, "step").size(), 5u);
  }
  ExpectNested(trace, 2);
  const std::vector<Bar> first = trace.Of(0, "communication");
  const std::vector<Bar> second = trace.Of(1, "communication");
  ASSERT_EQ(first.size(), second.size());
  ASSERT_GE(first.size(), 10u) << "two buckets in each of five steps";
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].name, second[i].name);
    EXPECT_EQ(first[i].args["bytes"], second[i].args["bytes"]);
    // On a loaded machine the host may observe an end only after the step.
    if (first[i].args.contains("end") || second[i].args.contains("end"))
      continue;
    // Neither can end before both have begun.
    EXPECT_LT(first[i].start, second[i].end) << first[i].name;
    EXPECT_LT(second[i].start, first[i].end) << first[i].name;
  }
}

TEST(TraceTest, PipelinesShowTheirActionsAndThePrediction) {
  const Trace trace =
      TraceOf("pipeline", {"--nproc=2", "--microbatches=3", "--trace_steps=3"});
  ASSERT_EQ(trace.processes.size(), 3u);
  EXPECT_EQ(trace.processes.at(2), "predicted");
  ExpectNested(trace, 2);
  for (int process : {0, 1, 2}) {
    const bool predicted = process == 2;
    // Two ranks in one process, one step; or one rank, three steps.
    const size_t expected = predicted ? 6 : 9;
    EXPECT_EQ(trace.Of(process, "forward").size(), expected);
    EXPECT_EQ(trace.Of(process, "backward").size(), expected);
  }
  for (int rank : {0, 1}) {
    for (const Bar& bar : trace.Of(rank, "forward")) {
      EXPECT_EQ(bar.lane, "compute");
      EXPECT_EQ(bar.args["stage"], rank);
    }
    // The loss is sent, too.
    EXPECT_EQ(trace.Of(rank, "communication").size(), 3u * 7);
  }
  // The prediction is drawn at the time of the last step.
  EXPECT_NEAR(trace.Of(2, "forward")[0].start, trace.Of(0, "forward")[6].start,
              kRounding);
}

TEST(TraceTest, StagesOfOneProcessHaveLanes) {
  const Trace trace =
      TraceOf("model_parallel", {"--accumulate=2", "--trace_steps=2"});
  ASSERT_EQ(trace.processes.size(), 2u);  // and the prediction
  EXPECT_EQ(trace.lanes.at(0).count("stage 1 (cpu)"), 1u);
  EXPECT_EQ(trace.Of(0, "communication").size(), 2u * 2 * 2);
  ExpectNested(trace, 1);
}

TEST(TraceTest, OperatorsAreThereWhenAskedFor) {
  const Trace trace = TraceOf("single", {"--trace_steps=1", "--trace_ops"});
  const std::vector<std::string> names = NamesOf(trace.Of(0, "operator"));
  EXPECT_NE(std::find(names.begin(), names.end(), "aten::conv2d"), names.end());
  EXPECT_EQ(trace.lanes.at(0).count("operators"), 1u);
}

TEST(TraceTest, OperatorsOfAnEvaluationBetweenTwoStepsAreLeftOut) {
  // The evaluation follows the second of three steps.
  const Trace trace =
      TraceOf("single",
              {"--train_size=64", "--test_size=400", "--batch_size=16",
               "--epochs=2", "--eval=true", "--trace_steps=3", "--trace_ops"});
  const std::vector<Bar> steps = trace.Of(0, "step");
  ASSERT_EQ(steps.size(), 3u);
  constexpr double kClocks = 1000;  // tolerance between two clocks
  for (const Bar& bar : trace.Of(0, "operator")) {
    EXPECT_FALSE(bar.start > steps[1].end + kClocks &&
                 bar.start < steps[2].start - kClocks)
        << bar.name;
  }
}

TEST(TraceTest, ATraceThatCannotBeWrittenInTheEndDoesNotEndTheTraining) {
  const std::string dir = FreshDir("trace_lost");
  const std::string fifo = dir + "/run.fifo", folder = dir + "/folder";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_directory(folder);
  const auto run = StartTrainer(
      "single",
      With({"--trace=" + folder + "/steps.json", "--record=" + fifo}));
  // Opens once the run, which has checked that the folder exists, starts
  // recording.
  std::ifstream records(fifo);
  std::filesystem::remove_all(folder);
  std::string line;
  int steps = 0;
  while (std::getline(records, line))
    steps += line.find("\"step_seconds\"") != std::string::npos;
  EXPECT_EQ(steps, 24);
  EXPECT_EQ(run->Wait(), 1);
  EXPECT_NE(run->Stdout().find("warning: no trace"), std::string::npos)
      << run->Stdout();
  EXPECT_NE(run->Stderr().find("the training is complete"), std::string::npos)
      << run->Stderr();
}

TEST(TraceTest, LossesStayAndARunThatEndsSoonerIsTracedToItsEnd) {
  const std::string dir = FreshDir("trace_short");
  const Flags flags = {"--nproc=2", "--max_steps=4"};
  OutputOf("ddp", With(Joined(flags, {"--record=" + dir + "/plain.jsonl"})));
  const Trace trace =
      TraceOf("ddp", Joined(flags, {"--record=" + dir + "/traced.jsonl"}));
  EXPECT_EQ(trace.Of(1, "step").size(), 2u);
  for (int rank : {0, 1}) {
    EXPECT_EQ(LossesOf(dir + "/plain.jsonl", rank),
              LossesOf(dir + "/traced.jsonl", rank));
  }
}

TEST(TraceTest, WhatCannotWorkIsRefusedBeforeTraining) {
  const std::string dir = FreshDir("trace_refused");
  const std::string fifo = FreshDir("trace_fifo") + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  struct Case {
    Flags flags;
    std::string complaint;
  };
  for (const Case& each :
       {Case{{"--trace=" + dir + "/none/a.json"}, "does not exist"},
        Case{{"--trace=" + dir}, "is a folder"},
        Case{{"--trace=" + fifo}, "not a regular file"},
        Case{{"--trace=/proc/self/a.json"}, "writing /proc/self/a.json"},
        Case{{"--trace=" + dir + "/a.json", "--trace_steps=0"}, "must be"},
        Case{{"--trace_ops"}, "needs --trace"},
        Case{{"--trace_steps=2"}, "needs --trace"},
        Case{{"--trace=" + dir + "/a.json", "--max_steps=2",
              "--record=" + dir + "/run.jsonl"},
             "begins with the third step"}}) {
    const Finished run = RunTrainer("single", With(each.flags));
    EXPECT_EQ(run.code, 2) << each.complaint;
    EXPECT_NE(run.err.find(each.complaint), std::string::npos) << run.err;
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir));
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
}

}  // namespace
}  // namespace rankwise
