#include "samplers/loader/single_threaded.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace rankwise {

void RunOperatorsSingleThreaded() {
  // ATen sets the calling thread's number on its first use, once; that must be
  // behind us.
  (void)at::get_num_threads();
  // OpenMP's own setting is per thread. LibTorch brings its OpenMP along under
  // a name of its own, so it is looked up rather than linked.
  using SetNumThreads = void (*)(int);
  auto set = reinterpret_cast<SetNumThreads>(
      dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(1);
}

}  // namespace rankwise
