#include "tests/virtual_gpu/sites.h"

#include <execinfo.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

namespace rankwise::virtual_gpu {
namespace {

struct Program {
  uintptr_t base = 0;
  uintptr_t end = 0;
};

// Returns the first program reported by the loader.
Program FindProgram() {
  Program program;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& found = *static_cast<Program*>(data);
        found.base = info->dlpi_addr;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type == PT_LOAD)
            found.end = info->dlpi_addr + part.p_vaddr + part.p_memsz;
        }
        return 1;
      },
      &program);
  return program;
}

// Returns "" for calls from libraries' own threads.
std::string Site(const char* call) {
  static const Program kProgram = FindProgram();
  constexpr int kDepth = 48, kFunctions = 2;
  void* frames[kDepth];
  const int depth = backtrace(frames, kDepth);
  std::string site = call;
  int found = 0;
  for (int i = 0; i < depth && found < kFunctions; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(frames[i]);
    if (address < kProgram.base || address >= kProgram.end) continue;
    char text[24];
    std::snprintf(text, sizeof(text), ":%lx", address - kProgram.base);
    site += text;
    ++found;
  }
  return found == 0 ? "" : site;
}

struct Sites {
  std::mutex mutex;
  std::set<std::string> seen;
  const char* const file = std::getenv("RANKWISE_VIRTUAL_GPU_SITES");
  const char* const skipped = std::getenv("RANKWISE_VIRTUAL_GPU_SKIP");
};

Sites& TheSites() {
  static Sites& sites = *new Sites;
  return sites;
}

struct WriteAtExit {
  ~WriteAtExit() {
    Sites& sites = TheSites();
    if (sites.file == nullptr) return;
    const std::lock_guard lock(sites.mutex);
    std::FILE* const file = std::fopen(sites.file, "a");
    if (file == nullptr) return;
    for (const std::string& site : sites.seen)
      std::fprintf(file, "%s\n", site.c_str());
    std::fclose(file);
  }
} write_at_exit;

}  // namespace

bool IsSkipped(const char* call) {
  Sites& sites = TheSites();
  if (sites.file == nullptr && sites.skipped == nullptr) return false;
  const std::string site = Site(call);
  if (site.empty()) return false;
  const std::lock_guard lock(sites.mutex);
  sites.seen.insert(site);
  return sites.skipped != nullptr && site == sites.skipped;
}

}  // namespace rankwise::virtual_gpu
