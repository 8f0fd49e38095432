#include "comm_bench/bench_flags.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "comm_bench/sweep/plan.h"
#include "parallel/launch/comm_flags.h"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

// What is measured.
ABSL_FLAG(std::string, mode, "sweep",
          "sweep: collectives over sizes; pairs: latency and bandwidth between "
          "every two ranks; new_group: how long it takes to make a process "
          "group; ladder: what each layer of software adds to an all_reduce; "
          "overlap: a collective next to matrix products; replay: the "
          "communication that a trainer recorded by --traffic_steps; units: "
          "the all-gathers and reduce-scatters of sharded data parallelism");
ABSL_FLAG(std::string, collectives, "all_reduce",
          "names separated by commas, or all: all_reduce, all_gather, "
          "reduce_scatter, broadcast, reduce, all_to_all, all_to_all_v, "
          "gather, scatter, send_recv, ping_pong, bidirectional, barrier");
ABSL_FLAG(std::string, min_bytes, "8", "the smallest size, such as 8 or 4K");
ABSL_FLAG(std::string, max_bytes, "64M", "the largest size");
ABSL_FLAG(double, factor, 4, "from one size to the next");
ABSL_FLAG(std::string, sizes, "",
          "sizes separated by commas, instead of the three flags above; of "
          "pairs: the first for latency, the last for bandwidth");
ABSL_FLAG(std::string, dtypes, "float32",
          "separated by commas, or all: float32, float64, float16, bfloat16, "
          "int32, int64, uint8");
ABSL_FLAG(std::string, ops, "sum",
          "separated by commas, or all: sum, avg, min, max, prod");
ABSL_FLAG(std::string, place, "auto",
          "in, out (of place) or both; auto: what c10d's own call does");
ABSL_FLAG(int, root, 0, "of broadcast, reduce, gather and scatter");
ABSL_FLAG(std::string, traffic, "",
          "of all_to_all_v: file with one line of weights per sending rank");
ABSL_FLAG(double, traffic_skew, 0,
          "of all_to_all_v without a file: 0 is even; above it, low ranks "
          "receive more");
ABSL_FLAG(int, group_size, 0,
          "ranks per group: groups of this size run at the same time; 0: one "
          "group of all ranks");
ABSL_FLAG(std::string, mesh, "",
          "axes of the ranks with their sizes, of which the last changes "
          "fastest: dp:2,tp:2; needs --axis");
ABSL_FLAG(std::string, axis, "",
          "of sweep: the groups are the lines of --mesh along this axis; of "
          "replay: only what such groups communicated");
ABSL_FLAG(std::string, lines, "both",
          "of --axis: one (the first line, while the others wait), all (at the "
          "same time), or both, one after the other");
ABSL_FLAG(int64_t, gemm_size, 512,
          "of overlap and units: rows and columns of the matrices that are "
          "multiplied");
ABSL_FLAG(std::string, replay, "",
          "of replay: file of the trainer's records; of units: that of "
          "//trainers:fsdp, whose units are taken");
ABSL_FLAG(std::string, units, "",
          "of units: bytes of the parameters of each, in order of forward, "
          "such as 33M,12x28M,154M");
ABSL_FLAG(int, zero, 3,
          "of units: 1 or 2, which gather each unit once a step, or 3, which "
          "gathers it for forward and for backward");
ABSL_FLAG(int, prefetch, 1,
          "of units: those that are gathered ahead of the one that computes");
ABSL_FLAG(std::string, compute_us, "",
          "of units: microseconds that a unit's forward computes, one number "
          "or one for each unit, separated by commas; backward takes twice "
          "that");

// How it is measured.
ABSL_FLAG(int, in_flight, 1,
          "calls that are started before the first is waited for");
ABSL_FLAG(std::string, cache, "hot",
          "hot: the same buffers each time; cold: caches are overwritten "
          "before each iteration");
ABSL_FLAG(bool, check, true,
          "check every element of the result before and after timing");
ABSL_FLAG(int64_t, warmup, -1,
          "iterations that do not count; -1: until stable");
ABSL_FLAG(int64_t, iterations, 0, "a fixed number of them; 0: until precise");
ABSL_FLAG(double, precision, 0.05,
          "a size is done when the 95 % interval of its median lies within "
          "this share of it");
ABSL_FLAG(double, max_seconds, 0.3, "a size is done after this time");
ABSL_FLAG(std::string, sync, "barrier",
          "how ranks line up before each iteration: barrier, window (an agreed "
          "time of a common clock) or none");
ABSL_FLAG(std::string, across, "slowest",
          "how the ranks' times of one iteration become one: slowest, transfer "
          "(last start to last end), makespan (first start to last end), mean");
ABSL_FLAG(std::string, arrival_us, "",
          "microseconds by which rank 0, 1, ... start late on purpose, "
          "separated by commas");
ABSL_FLAG(std::string, layer, "c10d",
          "c10d: PyTorch's process group, as the trainers use it; nccl: the "
          "calls of nccl.h itself (needs GPUs); mpi: those of mpi.h itself, "
          "blocking, under --backend=mpi; hierarchical: all_reduce within each "
          "host and then across, as //trainers:ddp --all_reduce does");
ABSL_FLAG(std::string, timing, "auto",
          "host: by the host's clock, until the device is done; events: by the "
          "GPU's own clock, between events in its stream; auto: events on "
          "GPUs, host on CPUs and in --mode=ladder");
ABSL_FLAG(bool, cuda_graph, false,
          "record 20 rounds of the calls in a CUDA graph and time its replays");
ABSL_FLAG(bool, registered, false,
          "buffers from NCCL's allocator, registered with its communicator");
ABSL_FLAG(bool, nccl_choices, true,
          "ask NCCL's log, outside of what is timed, which algorithm and "
          "protocol it chose; only where NCCL_DEBUG is not set");
ABSL_FLAG(int, relaunch, 1,
          "launches of all ranks, one after the other; shows each row's time "
          "with an interval over the launches");
ABSL_FLAG(int, launch, 0, "set by --relaunch: which launch this is");

// Where it goes.
ABSL_FLAG(std::string, record, "",
          "file to append all raw samples to, as JSON lines (docs/records.md)");
ABSL_FLAG(std::string, csv, "", "file to append the table's rows to");

// What --backend=fake pretends beyond latency, bandwidth and a straggler.
ABSL_FLAG(std::string, fake_skew_us, "",
          "microseconds by which rank 0, 1, ... enter every call late");
ABSL_FLAG(int, fake_tail_every, 0,
          "one call in this number takes longer; 0: none");
ABSL_FLAG(double, fake_tail_us, 0, "by how many microseconds");
ABSL_FLAG(bool, fake_virtual_time, false,
          "calls take exactly what they are said to cost, in a time of their "
          "own that passes at once; needs --fake_alpha_us");

namespace rankwise::comm_bench {
namespace {

std::vector<std::string> Names(const std::string& list) {
  return absl::StrSplit(list, ',');
}

// Reads a list of names, "all" standing for `all`.
template <typename T>
std::vector<T> ReadList(
    const char* flag, const std::string& text, const std::vector<T>& all,
    const std::function<absl::StatusOr<T>(const std::string&)>& read,
    FlagChecks& checks) {
  if (text == "all") return all;
  std::vector<T> items;
  for (const std::string& name : Names(text)) {
    absl::StatusOr<T> item = read(name);
    if (item.ok()) {
      items.push_back(*std::move(item));
    } else {
      checks.Complain(
          absl::StrCat("--", flag, "=", text, ": ", item.status().message()));
    }
  }
  return items;
}

template <typename T>
using Choices = std::vector<std::pair<std::string, T>>;

template <typename T>
void ReadChoice(const char* flag, const std::string& text,
                const Choices<std::type_identity_t<T>>& choices, T& value,
                FlagChecks& checks) {
  std::vector<std::string> names;
  for (const auto& [name, choice] : choices) {
    names.push_back(name);
    if (name == text) value = choice;
  }
  checks.OneOf(flag, text, names);
}

std::vector<double> ReadMicroseconds(const char* flag, const std::string& text,
                                     FlagChecks& checks) {
  std::vector<double> numbers;
  if (text.empty()) return numbers;
  for (const std::string& part : Names(text)) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number) || !(number >= 0 && number <= 1e9)) {
      checks.Complain(absl::StrCat("--", flag, "=", text, ": \"", part,
                                   "\" must be a number of microseconds "
                                   "between 0 and 1e9"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

// What `read` makes of the flag's text; `otherwise` where it refuses it.
template <typename T>
T ReadText(const char* flag, const std::string& text,
           const std::function<absl::StatusOr<T>(const std::string&)>& read,
           T otherwise, FlagChecks& checks) {
  absl::StatusOr<T> value = read(text);
  if (value.ok()) return *std::move(value);
  checks.Complain(
      absl::StrCat("--", flag, "=", text, ": ", value.status().message()));
  return otherwise;
}

// "dp:2,tp:2".
absl::StatusOr<std::vector<MeshAxis>> ParseMesh(const std::string& text) {
  std::vector<MeshAxis> axes;
  std::set<std::string> names;
  for (const std::string& part : Names(text)) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    MeshAxis& axis = axes.emplace_back(MeshAxis{words.first});
    if (axis.name.empty() || !absl::SimpleAtoi(words.second, &axis.size) ||
        axis.size < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", part, "\" must be an axis with its size, such as tp:2"));
    }
    if (!names.insert(axis.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(axis.name, " is given twice"));
    }
  }
  return axes;
}

// "33M,12x28M,154M".
absl::StatusOr<std::vector<int64_t>> ParseUnits(const std::string& text) {
  constexpr int64_t kMost = 10'000;
  std::vector<int64_t> units;
  for (const std::string& part : Names(text)) {
    const size_t cross = part.find('x');
    int64_t times = 1;
    if (cross != std::string::npos &&
        (!absl::SimpleAtoi(part.substr(0, cross), &times) || times < 1 ||
         times > kMost)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", part, "\" must begin with a number of units ",
                       "between 1 and ", kMost, ", as 12x28M does"));
    }
    ASSIGN_OR_RETURN(
        const int64_t bytes,
        ParseBytes(cross == std::string::npos ? part : part.substr(cross + 1)));
    units.insert(units.end(), static_cast<size_t>(times), bytes);
  }
  return units;
}

std::vector<int64_t> SizesFromFlags(FlagChecks& checks) {
  const std::string list = absl::GetFlag(FLAGS_sizes);
  if (!list.empty()) {
    return ReadText<std::vector<int64_t>>("sizes", list, ParseByteList, {},
                                          checks);
  }
  const int64_t min = ReadText<int64_t>(
      "min_bytes", absl::GetFlag(FLAGS_min_bytes), ParseBytes, 1, checks);
  const int64_t max = ReadText<int64_t>(
      "max_bytes", absl::GetFlag(FLAGS_max_bytes), ParseBytes, 1, checks);
  const double factor = absl::GetFlag(FLAGS_factor);
  if (min > max) {
    checks.Complain(absl::StrCat("--min_bytes=", FormatBytes(min),
                                 ": is above --max_bytes=", FormatBytes(max)));
  }
  if (!std::isfinite(factor) || factor < 1.01) {
    checks.Complain(absl::StrCat("--factor=", factor,
                                 ": must be at least 1.01, and finite"));
  }
  return checks.status().ok() ? GeometricSizes(min, max, factor)
                              : std::vector<int64_t>();
}

void ReadWhat(BenchConfig& config, FlagChecks& checks) {
  config.mode = absl::GetFlag(FLAGS_mode);
  checks.OneOf(
      "mode", config.mode,
      {"sweep", "pairs", "new_group", "ladder", "overlap", "replay", "units"});
  const std::string collectives = absl::GetFlag(FLAGS_collectives);
  const std::string dtypes = absl::GetFlag(FLAGS_dtypes);
  const std::string ops = absl::GetFlag(FLAGS_ops);
  config.skip_unsupported =
      collectives == "all" || dtypes == "all" || ops == "all";
  config.collectives = ReadList<const Collective*>(
      "collectives", collectives, AllCollectives(), FindCollective, checks);
  config.dtypes = ReadList<c10::ScalarType>("dtypes", dtypes, AllDtypes(),
                                            ParseDtype, checks);
  config.ops = ReadList<ReduceOp>("ops", ops, AllOps(), ParseOp, checks);
  config.place = absl::GetFlag(FLAGS_place);
  checks.OneOf("place", config.place, {"auto", "in", "out", "both"});
  config.sizes = SizesFromFlags(checks);
  config.root = absl::GetFlag(FLAGS_root);
  checks.InRange("root", config.root, 0);
  config.traffic_file = UserPath(absl::GetFlag(FLAGS_traffic));
  config.traffic_skew = absl::GetFlag(FLAGS_traffic_skew);
  checks.InRange("traffic_skew", config.traffic_skew, 0.0, 10.0);
  config.group_size = absl::GetFlag(FLAGS_group_size);
  checks.InRange("group_size", config.group_size, 0);
  if (const std::string mesh = absl::GetFlag(FLAGS_mesh); !mesh.empty())
    config.mesh =
        ReadText<std::vector<MeshAxis>>("mesh", mesh, ParseMesh, {}, checks);
  config.axis = absl::GetFlag(FLAGS_axis);
  config.lines = absl::GetFlag(FLAGS_lines);
  checks.OneOf("lines", config.lines, {"both", "one", "all"});
  config.gemm_size = absl::GetFlag(FLAGS_gemm_size);
  checks.InRange<int64_t>("gemm_size", config.gemm_size, 1, 1 << 16);
  config.replay_file = UserPath(absl::GetFlag(FLAGS_replay));
}

void ReadUnits(BenchConfig& config, FlagChecks& checks) {
  if (const std::string units = absl::GetFlag(FLAGS_units); !units.empty())
    config.units =
        ReadText<std::vector<int64_t>>("units", units, ParseUnits, {}, checks);
  config.zero = absl::GetFlag(FLAGS_zero);
  checks.InRange("zero", config.zero, 1, 3);
  config.prefetch = absl::GetFlag(FLAGS_prefetch);
  checks.InRange("prefetch", config.prefetch, 0, 1 << 10);
  for (const double us : ReadMicroseconds(
           "compute_us", absl::GetFlag(FLAGS_compute_us), checks)) {
    config.compute_seconds.push_back(us * 1e-6);
  }
}

void ReadTiming(TimingConfig& timing, FlagChecks& checks) {
  timing.warmup = absl::GetFlag(FLAGS_warmup);
  timing.iterations = absl::GetFlag(FLAGS_iterations);
  timing.precision = absl::GetFlag(FLAGS_precision);
  timing.max_seconds = absl::GetFlag(FLAGS_max_seconds);
  checks.InRange<int64_t>("warmup", timing.warmup, -1, 1'000'000);
  checks.InRange<int64_t>("iterations", timing.iterations, 0, 1'000'000);
  checks.InRange("precision", timing.precision, 1e-4, 1.0);
  checks.InRange("max_seconds", timing.max_seconds, 1e-3, 3600.0);
  ReadChoice("sync", absl::GetFlag(FLAGS_sync),
             {{"barrier", Sync::kBarrier},
              {"window", Sync::kWindow},
              {"none", Sync::kNone}},
             timing.sync, checks);
  ReadChoice("across", absl::GetFlag(FLAGS_across),
             {{"slowest", Across::kSlowest},
              {"transfer", Across::kTransfer},
              {"makespan", Across::kMakespan},
              {"mean", Across::kMean}},
             timing.across, checks);
  for (const double us : ReadMicroseconds(
           "arrival_us", absl::GetFlag(FLAGS_arrival_us), checks)) {
    timing.arrival_seconds.push_back(us * 1e-6);
  }
}

void ReadHow(BenchConfig& config, FlagChecks& checks) {
  MeasureConfig& measure = config.measure;
  measure.in_flight = absl::GetFlag(FLAGS_in_flight);
  checks.InRange("in_flight", measure.in_flight, 1, 1024);
  const std::string cache = absl::GetFlag(FLAGS_cache);
  checks.OneOf("cache", cache, {"hot", "cold"});
  measure.cold = cache == "cold";
  measure.check = absl::GetFlag(FLAGS_check);
  config.layer = absl::GetFlag(FLAGS_layer);
  checks.OneOf("layer", config.layer, {"c10d", "nccl", "mpi", "hierarchical"});
  config.timing = absl::GetFlag(FLAGS_timing);
  checks.OneOf("timing", config.timing, {"auto", "host", "events"});
  measure.graph = absl::GetFlag(FLAGS_cuda_graph);
  measure.registered = absl::GetFlag(FLAGS_registered);
  config.nccl_choices = absl::GetFlag(FLAGS_nccl_choices);
  config.fake_virtual_time = absl::GetFlag(FLAGS_fake_virtual_time);
  ReadTiming(measure.timing, checks);
}

void ReadWhere(BenchConfig& config, FlagChecks& checks) {
  config.record_file = UserPath(absl::GetFlag(FLAGS_record));
  config.csv_file = UserPath(absl::GetFlag(FLAGS_csv));
  checks.FileOrNew("record", config.record_file);
  checks.FileOrNew("csv", config.csv_file);
  config.relaunch = absl::GetFlag(FLAGS_relaunch);
  checks.InRange("relaunch", config.relaunch, 1, 1000);
  config.measure.launch = absl::GetFlag(FLAGS_launch);
  checks.InRange("launch", config.measure.launch, 0);
}

}  // namespace

absl::StatusOr<BenchConfig> BenchConfigFromFlags() {
  FlagChecks checks;
  BenchConfig config;
  ReadWhat(config, checks);
  ReadUnits(config, checks);
  ReadHow(config, checks);
  ReadWhere(config, checks);
  for (const auto& [name, value] : FlagsOf("comm_bench/")) {
    if (DiffersFromDefault(*absl::FindCommandLineFlag(name)))
      config.given.insert(name);
  }
  if (!checks.status().ok()) return checks.status();
  return config;
}

absl::Status AddFakeFlags(CommConfig& comm) {
  FlagChecks checks;
  FakeBackendConfig& fake = comm.fake;
  fake.skew_us = ReadMicroseconds("fake_skew_us",
                                  absl::GetFlag(FLAGS_fake_skew_us), checks);
  fake.tail_every = absl::GetFlag(FLAGS_fake_tail_every);
  fake.tail_us = absl::GetFlag(FLAGS_fake_tail_us);
  checks.InRange("fake_tail_every", fake.tail_every, 0);
  checks.InRange("fake_tail_us", fake.tail_us, 0.0, 1e9);
  if ((fake.tail_us > 0) != (fake.tail_every > 0))
    checks.Complain("--fake_tail_us, --fake_tail_every: need each other");
  if (absl::GetFlag(FLAGS_fake_virtual_time) && fake.alpha_us == 0)
    checks.Complain(
        "--fake_virtual_time: needs --fake_alpha_us above 0, or calls take no "
        "time");
  return checks.status();
}

std::map<std::string, std::string> SharedFlags() {
  std::map<std::string, std::string> flags = FlagsOf("comm_bench/");
  for (const char* own : {"record", "csv", "log_dir", "nproc"})
    flags.erase(own);
  return flags;
}

}  // namespace rankwise::comm_bench
