// OpenMPI's functions and predefined objects, from the library loaded at the
// first use of --backend=mpi, so that binaries start on machines without it.
//
// mpi.h's macros for objects (MPI_FLOAT) are addresses in the library: programs
// that use them do not link.
#ifndef RANKWISE_PARALLEL_COMM_BACKENDS_MPI_API_H_
#define RANKWISE_PARALLEL_COMM_BACKENDS_MPI_API_H_

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "torch/csrc/distributed/c10d/Types.hpp"

namespace rankwise {

// Each becomes a member of MpiApi: `mpi.Comm_rank(...)` is MPI_Comm_rank(...).
#define RANKWISE_MPI_CALLS(CALL) \
  CALL(Init_thread)              \
  CALL(Finalize)                 \
  CALL(Error_string)             \
  CALL(Comm_rank)                \
  CALL(Comm_size)                \
  CALL(Comm_get_attr)            \
  CALL(Comm_group)               \
  CALL(Comm_create_group)        \
  CALL(Comm_set_errhandler)      \
  CALL(Group_incl)               \
  CALL(Group_free)               \
  CALL(Op_create)                \
  CALL(Test)                     \
  CALL(Waitall)                  \
  CALL(Isend)                    \
  CALL(Irecv)                    \
  CALL(Ibarrier)                 \
  CALL(Ibcast)                   \
  CALL(Iallreduce)               \
  CALL(Ireduce)                  \
  CALL(Iallgather)               \
  CALL(Igather)                  \
  CALL(Iscatter)                 \
  CALL(Ireduce_scatter_block)    \
  CALL(Ialltoallv)               \
  CALL(Allreduce)                \
  CALL(Bcast)                    \
  CALL(Reduce)                   \
  CALL(Allgather)                \
  CALL(Reduce_scatter_block)

struct MpiApi {
#define RANKWISE_MPI_MEMBER(name) decltype(&::MPI_##name) name = nullptr;
  RANKWISE_MPI_CALLS(RANKWISE_MPI_MEMBER)
#undef RANKWISE_MPI_MEMBER
  MPI_Comm world = nullptr;
  MPI_Errhandler errors_return = nullptr;
  int largest_tag = 32767;  // MPI_TAG_UB after MPI has started

  // Throws c10::Error for types that no trainer uses. MPI lacks 16-bit
  // floating-point types: they are sent as integers of their size.
  MPI_Datatype TypeOf(c10::ScalarType dtype) const;

  // How to reduce `dtype` by `op`: custom operations for 16-bit floating-point
  // types, rounded after each addition. Throws c10::Error for reductions that
  // MPI lacks.
  struct Reduction {
    MPI_Datatype type;
    MPI_Op op;
  };
  Reduction ReductionOf(c10::ScalarType dtype, const c10d::ReduceOp& op) const;

  // Creates the operations for 16-bit floating-point types. Call once, after
  // MPI_Init_thread.
  void CreateReductions();

  // Returns `tag`. Throws c10::Error if it is negative or above this MPI's
  // limit: 2^23 - 1 in Open MPI's UCX; the standard guarantees only 32,767.
  int CheckedTag(int tag) const;

  // Throws c10::DistBackendError unless `result` is MPI_SUCCESS.
  void Check(int result, const char* call) const;

  // By c10::ScalarType and c10d::ReduceOp::RedOpType; nullptr if MPI lacks
  // them.
  MPI_Datatype types[c10::NumScalarTypes] = {};
  MPI_Op ops[c10::NumScalarTypes][c10d::ReduceOp::UNUSED] = {};
};

// Converts to MPI's type of counts. Throws c10::Error if `count` is too large.
int MpiCount(int64_t count);

// Loads the library on the first call; the result lives as long as the process.
// NotFound names the package to install.
absl::StatusOr<MpiApi*> LoadMpi();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_BACKENDS_MPI_API_H_
