// What the reducing entries share: how c10d names the operation.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_REDUCTION_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_REDUCTION_H_

#include "parallel/comm/communicator.h"
#include "torch/csrc/distributed/c10d/Types.hpp"

namespace rankwise::comm_bench {

inline c10d::ReduceOp::RedOpType C10dOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      break;
    case ReduceOp::kAverage:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
  }
  return c10d::ReduceOp::SUM;
}

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_REDUCTION_H_
