#include "parallel/comm/backends/mpi/api.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <utility>

#include "ATen/ops/from_blob.h"
#include "ATen/record_function.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "parallel/comm/backends/shared_memory.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Op = c10d::ReduceOp;

// The type as which `dtype` is moved, by the size of its elements.
const char* MovedAs(c10::ScalarType dtype) {
  switch (c10::elementSize(dtype)) {
    case 1:
      return "ompi_mpi_uint8_t";
    case 2:
      return "ompi_mpi_uint16_t";
    case 4:
      return "ompi_mpi_uint32_t";
    case 8:
      return "ompi_mpi_uint64_t";
    default:
      return "ompi_mpi_c_double_complex";
  }
}

// The type that is reduced as `dtype`; null: none.
const char* ReducedAs(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kFloat:
      return "ompi_mpi_float";
    case c10::kDouble:
      return "ompi_mpi_double";
    case c10::kChar:
      return "ompi_mpi_int8_t";
    case c10::kByte:
    case c10::kBool:
      return "ompi_mpi_uint8_t";
    case c10::kShort:
      return "ompi_mpi_int16_t";
    case c10::kInt:
      return "ompi_mpi_int32_t";
    case c10::kLong:
      return "ompi_mpi_int64_t";
    default:
      return nullptr;
  }
}

const char* SymbolOf(Op::RedOpType op) {
  switch (op) {
    case Op::SUM:
      return "ompi_mpi_op_sum";
    case Op::PRODUCT:
      return "ompi_mpi_op_prod";
    case Op::MIN:
      return "ompi_mpi_op_min";
    case Op::MAX:
      return "ompi_mpi_op_max";
    default:
      return nullptr;
  }
}

absl::StatusOr<MpiApi> Load() {
  // Global: OpenMPI's plug-ins look for its symbols.
  void* const library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("OpenMPI's library cannot be loaded (", dlerror(),
                     "); install it: apt-get install openmpi-bin"));
  }
  MpiApi mpi;
  const char* missing = nullptr;
  const auto find = [&](auto& pointer, const char* symbol) {
    if (symbol == nullptr) return;
    void* const found = dlsym(library, symbol);
    if (found == nullptr) missing = symbol;
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(found);
  };
#define RANKWISE_MPI_FIND(name) find(mpi.name, "MPI_" #name);
  RANKWISE_MPI_CALLS(RANKWISE_MPI_FIND)
#undef RANKWISE_MPI_FIND
  find(mpi.world, "ompi_mpi_comm_world");
  find(mpi.errors_return, "ompi_mpi_errors_return");
  for (const c10::ScalarType dtype :
       {c10::kFloat, c10::kDouble, c10::kHalf, c10::kBFloat16, c10::kChar,
        c10::kByte, c10::kBool, c10::kShort, c10::kInt, c10::kLong,
        c10::kComplexFloat, c10::kComplexDouble}) {
    find(mpi.moved[static_cast<int>(dtype)], MovedAs(dtype));
    find(mpi.reduced[static_cast<int>(dtype)], ReducedAs(dtype));
  }
  for (const Op::RedOpType op : {Op::SUM, Op::PRODUCT, Op::MIN, Op::MAX}) {
    find(mpi.ops[op], SymbolOf(op));
  }
  if (missing == nullptr) return mpi;
  return absl::NotFoundError(
      absl::StrCat("libmpi.so.40 has no ", missing,
                   ", so it is not OpenMPI 4 or 5; install openmpi-bin"));
}

// An operation on elements of a type that MPI does not know.
template <c10::ScalarType kType, Op::RedOpType kOp>
void Reduce(void* from, void* into, int* count, MPI_Datatype*) {
  // Operators of the thread that polls are not the model's.
  const at::DisableRecordFunctionGuard unrecorded;
  const at::TensorOptions options(kType);
  ReduceInto(at::from_blob(into, {*count}, options),
             at::from_blob(from, {*count}, options), Op(kOp));
}

template <c10::ScalarType kType>
MPI_User_function* OwnFunction(Op::RedOpType op) {
  switch (op) {
    case Op::PRODUCT:
      return Reduce<kType, Op::PRODUCT>;
    case Op::MIN:
      return Reduce<kType, Op::MIN>;
    case Op::MAX:
      return Reduce<kType, Op::MAX>;
    default:
      return Reduce<kType, Op::SUM>;
  }
}

// Made once, and kept until the process ends.
MPI_Op OwnOp(const MpiApi& mpi, c10::ScalarType dtype, Op::RedOpType op) {
  static std::mutex& mutex = *new std::mutex;
  static auto& made =
      *new std::map<std::pair<c10::ScalarType, Op::RedOpType>, MPI_Op>;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = made.try_emplace({dtype, op});
  if (is_new) {
    MPI_User_function* const function = dtype == c10::kHalf
                                            ? OwnFunction<c10::kHalf>(op)
                                            : OwnFunction<c10::kBFloat16>(op);
    mpi.Check(mpi.Op_create(function, /*commute=*/1, &entry->second),
              "MPI_Op_create");
  }
  return entry->second;
}

}  // namespace

MPI_Datatype MpiApi::TypeToMove(c10::ScalarType dtype) const {
  const MPI_Datatype type = moved[static_cast<int>(dtype)];
  TORCH_CHECK(type != nullptr, "backend=mpi does not carry ",
              c10::toString(dtype));
  return type;
}

MpiApi::Reduction MpiApi::ReductionOf(c10::ScalarType dtype,
                                      const Op& op) const {
  TORCH_CHECK(op.op_ < std::size(ops) && ops[op.op_] != nullptr,
              "backend=mpi reduces by sum, product, min and max only; sum, and "
              "divide or scale the result");
  if (dtype == c10::kHalf || dtype == c10::kBFloat16) {
    return {TypeToMove(dtype), OwnOp(*this, dtype, op.op_)};
  }
  const MPI_Datatype type = reduced[static_cast<int>(dtype)];
  TORCH_CHECK(type != nullptr, "backend=mpi cannot reduce ",
              c10::toString(dtype));
  return {type, ops[op.op_]};
}

void MpiApi::Check(int result, const char* call) const {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  Error_string(result, text, &length);
  C10_THROW_ERROR(DistBackendError, absl::StrCat(call, ": ", text));
}

absl::StatusOr<const MpiApi*> LoadMpi() {
  static const auto& loaded = *new absl::StatusOr<MpiApi>(Load());
  RETURN_IF_ERROR(loaded.status());
  return &*loaded;
}

}  // namespace rankwise
