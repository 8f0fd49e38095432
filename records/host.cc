#include "records/host.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rankwise {
namespace {

int64_t UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return sysconf(_SC_NPROCESSORS_ONLN);
}

// Only the first processor's entry: the file has one per core.
std::string FirstCpuinfoEntry() {
  std::ifstream file("/proc/cpuinfo");
  std::string entry, line;
  while (std::getline(file, line) && !line.empty()) {
    absl::StrAppend(&entry, line, "\n");
  }
  return entry;
}

}  // namespace

std::string CpuModel(absl::string_view cpuinfo) {
  for (absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    if (absl::StripAsciiWhitespace(line.substr(0, colon)) != "model name") {
      continue;
    }
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

HostInfo CollectHostInfo() {
  HostInfo host;
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) == 0) host.hostname = name;
  host.cpu_model = CpuModel(FirstCpuinfoEntry());
  host.cores = UsableCores();
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  if (pages > 0) host.memory_bytes = pages * sysconf(_SC_PAGESIZE);
  return host;
}

std::string CompilerVersion() {
#if defined(__clang__)
  return absl::StrCat("clang++ ", __clang_major__, ".", __clang_minor__, ".",
                      __clang_patchlevel__);
#else
  return absl::StrCat("g++ ", __GNUC__, ".", __GNUC_MINOR__, ".",
                      __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace rankwise
