// The names of element types and reductions on the command line and in records.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_ELEMENT_TYPES_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_ELEMENT_TYPES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "comm_bench/collectives/collective.h"

namespace rankwise::comm_bench {

// float32, float64, float16, bfloat16, int32, int64, uint8.
const std::vector<c10::ScalarType>& AllDtypes();
// sum, avg, min, max, prod.
const std::vector<ReduceOp>& AllOps();

// As PyTorch spells it, "float32".
std::string DtypeName(c10::ScalarType dtype);
// Also takes fp32, fp64, fp16 and bf16. InvalidArgument lists the names.
absl::StatusOr<c10::ScalarType> ParseDtype(const std::string& name);

// As nccl-tests spells it, "avg".
std::string OpName(ReduceOp op);
// InvalidArgument lists the names.
absl::StatusOr<ReduceOp> ParseOp(const std::string& name);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_ELEMENT_TYPES_H_
