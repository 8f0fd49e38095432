// Runs the parsers of files on mutated copies of valid files:
//   bazel run //tests/fuzz -- --parser=records --seconds=600
// Each input must be parsed within time and memory limits, without a crash, and
// with a valid result (parser.h). Failing inputs are saved as files, and can be
// reproduced by their number.

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "records/command_line.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/parser.h"

ABSL_FLAG(std::string, parser, "all",
          "parsers to run, comma-separated, or all");
ABSL_FLAG(double, seconds, 0, "processor time per parser; 0: --inputs");
ABSL_FLAG(int64_t, inputs, 1000, "inputs per parser if --seconds is 0");
ABSL_FLAG(int64_t, first, 0, "number of the first input");
// The study has a flag named seed.
ABSL_FLAG(uint64_t, fuzz_seed, 1, "seed of the mutations");
ABSL_FLAG(std::string, findings, "",
          "folder for the inputs that fail; empty: a temporary one");

namespace rankwise::fuzz {
namespace {

constexpr int kMostFindings = 20;     // per parser, which is then skipped
constexpr int kSecondsPerInput = 20;  // processor time
constexpr int64_t kMemoryBytes = int64_t{512} << 20;

// Whether the address space belongs to the program and can be limited.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasShadowMemory = true;
#else
constexpr bool kHasShadowMemory = false;
#endif

// State that a worker shares with its parent.
struct Progress {
  int64_t input;  // the current or the last input
  int64_t accepted, refused;
  double slowest_seconds;
  char fault[4096];  // of `input`
};

// One parser, its seed files, and a separate folder.
struct Task {
  const Parser* parser = nullptr;
  std::vector<Parts> seeds;
  std::string dir;
};

Parts MakeInput(const Task& task, int64_t number) {
  Mutator mutator(absl::GetFlag(FLAGS_fuzz_seed), number);
  Parts parts = task.seeds[mutator.Below(task.seeds.size())];
  if (number < static_cast<int64_t>(task.seeds.size()))
    return task.seeds[number];
  const size_t which = mutator.Below(parts.size());
  std::vector<std::string> others;
  for (const Parts& seed : task.seeds) others.push_back(seed[which]);
  parts[which] = mutator.Mutate(parts[which], others);
  return parts;
}

// Returns the peak resident bytes of this process: an input is charged only for
// its excess over all earlier inputs of its worker.
int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// Returns the processor time used by `who`: RUSAGE_SELF, or RUSAGE_CHILDREN
// (terminated children). Unlike elapsed time, independent of the machine's
// load.
double SecondsUsed(int who) {
  rusage usage;
  getrusage(who, &usage);
  return absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                               absl::DurationFromTimeval(usage.ru_stime));
}

// Ends this process by SIGPROF after this additional processor time.
void LimitSeconds(int seconds) {
  const itimerval limit = {.it_interval = {}, .it_value = {seconds, 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
}

// Returns "", or the error in the result for an input. Seeds are valid.
std::string FaultOf(const Task& task, int64_t number, Progress& progress) {
  const Parts parts = MakeInput(task, number);
  const int64_t before = PeakBytes();
  const double start = SecondsUsed(RUSAGE_SELF);
  const Verdict verdict = task.parser->check(parts, task.dir);
  progress.slowest_seconds =
      std::max(progress.slowest_seconds, SecondsUsed(RUSAGE_SELF) - start);
  ++(verdict.refused.ok() ? progress.accepted : progress.refused);
  const int64_t grown = PeakBytes() - before;
  if (grown > kMemoryBytes) return absl::StrCat("took ", grown, " bytes");
  if (verdict.refused.ok()) return verdict.nonsense;
  const std::string fault = MessageFault(*task.parser, verdict.refused);
  const bool is_seed = number < static_cast<int64_t>(task.seeds.size());
  if (fault.empty() && !is_seed) return "";
  return absl::StrCat(is_seed ? "a valid file is refused" : fault, ": ",
                      verdict.refused.message());
}

void LimitMemory() {
  if (kHasShadowMemory) return;
  long pages = 0;
  FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) std::abort();
  std::fclose(file);
  const rlim_t bytes = pages * sysconf(_SC_PAGESIZE) + 2 * kMemoryBytes;
  const rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

// Runs in a separate process, which ends at the first fault, or, with
// --seconds, after `seconds` of processor time.
[[noreturn]] void Work(const Task& task, int64_t first, double seconds,
                       Progress& progress) {
  LimitMemory();
  const bool timed = absl::GetFlag(FLAGS_seconds) > 0;
  const int64_t last = absl::GetFlag(FLAGS_first) + absl::GetFlag(FLAGS_inputs);
  for (int64_t i = first; timed ? SecondsUsed(RUSAGE_SELF) < seconds : i < last;
       ++i) {
    progress.input = i;
    LimitSeconds(kSecondsPerInput);
    const std::string fault = FaultOf(task, i, progress);
    if (fault.empty()) continue;
    std::snprintf(progress.fault, sizeof(progress.fault), "%s", fault.c_str());
    _exit(3);
  }
  _exit(0);
}

std::string EndOf(int status, const Progress& progress) {
  if (progress.fault[0] != '\0') return progress.fault;
  if (!WIFSIGNALED(status))
    return absl::StrCat("ends with ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return signal == SIGPROF
             ? absl::StrCat("takes more than ", kSecondsPerInput, " s")
             : absl::StrCat("ends with ", strsignal(signal));
}

void Report(const Task& task, const std::string& fault, int64_t number) {
  const std::string path =
      absl::StrCat(absl::GetFlag(FLAGS_findings), "/", task.parser->name, "-",
                   absl::GetFlag(FLAGS_fuzz_seed), "-", number);
  WriteFile(path, absl::StrJoin(MakeInput(task, number), "\n--- part ---\n"));
  std::cout << task.parser->name << ": input " << number << " " << fault
            << "\n  " << path << "\n  again: --parser=" << task.parser->name
            << " --fuzz_seed=" << absl::GetFlag(FLAGS_fuzz_seed)
            << " --first=" << number << " --inputs=1\n"
            << std::flush;
}

// Returns the number of findings.
int Fuzz(const Task& task, Progress& progress) {
  const double before = SecondsUsed(RUSAGE_CHILDREN);
  const auto used = [&] { return SecondsUsed(RUSAGE_CHILDREN) - before; };
  progress = {};
  int findings = 0;
  for (int64_t next = absl::GetFlag(FLAGS_first); findings < kMostFindings;
       next = progress.input + 1) {
    progress.fault[0] = '\0';
    const double seconds = absl::GetFlag(FLAGS_seconds) - used();
    const pid_t worker = fork();
    if (worker == 0) Work(task, next, seconds, progress);
    int status = 0;
    if (worker < 0 || waitpid(worker, &status, 0) != worker) {
      std::perror("fuzz: cannot run a worker process");
      std::abort();
    }
    if (status == 0) break;
    ++findings;
    Report(task, EndOf(status, progress), progress.input);
  }
  std::cout << task.parser->name << ": " << progress.accepted + progress.refused
            << " inputs in "
            << absl::FormatDuration(
                   absl::Trunc(absl::Seconds(used()), absl::Milliseconds(100)))
            << ", " << progress.accepted << " accepted, " << progress.refused
            << " refused, slowest "
            << absl::FormatDuration(
                   absl::Trunc(absl::Seconds(progress.slowest_seconds),
                               absl::Milliseconds(1)))
            << ", " << findings << " findings\n"
            << std::flush;
  return findings;
}

std::string MakeFolder() {
  const char* const base = std::getenv("TEST_TMPDIR");
  std::string path =
      absl::StrCat(base == nullptr ? "/tmp" : base, "/rankwise-fuzz-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) std::abort();
  return path;
}

// Returns whether all parsers passed.
bool FuzzAll(const std::string& dir) {
  const std::vector<std::string> wanted =
      absl::StrSplit(absl::GetFlag(FLAGS_parser), ',');
  void* const shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) std::abort();
  int findings = 0;
  size_t found = 0;
  for (const Parser& parser : AllParsers()) {
    if (wanted[0] != "all" &&
        std::find(wanted.begin(), wanted.end(), parser.name) == wanted.end())
      continue;
    ++found;
    const std::string own = absl::StrCat(dir, "/", parser.name);
    std::filesystem::create_directories(own);
    const Task task = {&parser, parser.seeds(own), own};
    if (task.seeds.empty()) std::abort();
    findings += Fuzz(task, *static_cast<Progress*>(shared));
  }
  if (found < wanted.size()) {
    std::cerr << "--parser=" << absl::GetFlag(FLAGS_parser)
              << ": no such parser\n";
    return false;
  }
  return findings == 0;
}

}  // namespace
}  // namespace rankwise::fuzz

int main(int argc, char** argv) {
  rankwise::ParseFlags(argc, argv);
  const std::string dir = rankwise::fuzz::MakeFolder();
  if (absl::GetFlag(FLAGS_findings).empty())
    absl::SetFlag(&FLAGS_findings, rankwise::fuzz::MakeFolder());
  const bool passed = rankwise::fuzz::FuzzAll(dir);
  std::filesystem::remove_all(dir);
  return passed ? 0 : 1;
}
