// What a run record says about the machine and the compiler.

#ifndef RECORDS_HOST_H_
#define RECORDS_HOST_H_

#include <string>

#include "absl/strings/string_view.h"
#include "records/record.h"

namespace rankwise {

// Reads the machine's description from the kernel; takes well under a
// millisecond. What cannot be found out stays "" or 0.
HostInfo CollectHostInfo();

// The first "model name" of a /proc/cpuinfo text, else "".
std::string CpuModel(absl::string_view cpuinfo);

// The compiler of this binary: "g++ 12.2.0".
std::string CompilerVersion();

}  // namespace rankwise

#endif  // RECORDS_HOST_H_
