#include <nccl.h>

#include "comm_bench/nccl/nccl_log_switch.h"

namespace rankwise::comm_bench {

void RereadNcclVariables() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ncclResetDebugInit();
#pragma GCC diagnostic pop
}

}  // namespace rankwise::comm_bench
