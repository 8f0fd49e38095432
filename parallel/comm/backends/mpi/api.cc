#include "parallel/comm/backends/mpi/api.h"

#include <dlfcn.h>

#include <climits>
#include <iterator>
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

constexpr std::pair<c10::ScalarType, const char*> kTypes[] = {
    {c10::kFloat, "ompi_mpi_float"},
    {c10::kDouble, "ompi_mpi_double"},
    {c10::kHalf, "ompi_mpi_uint16_t"},
    {c10::kBFloat16, "ompi_mpi_uint16_t"},
    {c10::kChar, "ompi_mpi_int8_t"},
    {c10::kByte, "ompi_mpi_uint8_t"},
    {c10::kBool, "ompi_mpi_uint8_t"},
    {c10::kShort, "ompi_mpi_int16_t"},
    {c10::kInt, "ompi_mpi_int32_t"},
    {c10::kLong, "ompi_mpi_int64_t"},
    {c10::kComplexFloat, "ompi_mpi_c_float_complex"},
    {c10::kComplexDouble, "ompi_mpi_c_double_complex"}};

constexpr std::pair<Op::RedOpType, const char*> kOps[] = {
    {Op::SUM, "ompi_mpi_op_sum"},
    {Op::PRODUCT, "ompi_mpi_op_prod"},
    {Op::MIN, "ompi_mpi_op_min"},
    {Op::MAX, "ompi_mpi_op_max"}};

absl::StatusOr<MpiApi> Load() {
  // RTLD_GLOBAL, since OpenMPI's plug-ins look up its symbols.
  void* const library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("OpenMPI's library cannot be loaded (", dlerror(),
                     "); install it: apt-get install openmpi-bin"));
  }
  MpiApi mpi;
  const char* missing = nullptr;
  const auto find = [&](auto& pointer, const char* symbol) {
    void* const found = dlsym(library, symbol);
    if (found == nullptr) missing = symbol;
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(found);
  };
#define RANKWISE_MPI_FIND(name) find(mpi.name, "MPI_" #name);
  RANKWISE_MPI_CALLS(RANKWISE_MPI_FIND)
#undef RANKWISE_MPI_FIND
  find(mpi.world, "ompi_mpi_comm_world");
  find(mpi.errors_return, "ompi_mpi_errors_return");
  for (const auto& [dtype, symbol] : kTypes) {
    find(mpi.types[static_cast<int>(dtype)], symbol);
    for (const auto& [op, op_symbol] : kOps) {
      find(mpi.ops[static_cast<int>(dtype)][op], op_symbol);
    }
  }
  if (missing == nullptr) return mpi;
  return absl::NotFoundError(
      absl::StrCat("libmpi.so.40 has no ", missing,
                   ", so it is not OpenMPI 4 or 5; install openmpi-bin"));
}

// Reduces elements of a type that MPI lacks.
template <c10::ScalarType kType, Op::RedOpType kOp>
void Reduce(void* from, void* into, int* count, MPI_Datatype*) {
  // Operators of the polling thread are not the model's.
  const at::DisableRecordFunctionGuard unrecorded;
  const at::TensorOptions options(kType);
  ReduceInto(at::from_blob(into, {*count}, options),
             at::from_blob(from, {*count}, options), Op(kOp));
}

template <c10::ScalarType kType>
void CreateOps(MpiApi& mpi) {
  const auto create = [&](Op::RedOpType op, MPI_User_function* function) {
    mpi.Check(mpi.Op_create(function, /*commute=*/1,
                            &mpi.ops[static_cast<int>(kType)][op]),
              "MPI_Op_create");
  };
  create(Op::SUM, Reduce<kType, Op::SUM>);
  create(Op::PRODUCT, Reduce<kType, Op::PRODUCT>);
  create(Op::MIN, Reduce<kType, Op::MIN>);
  create(Op::MAX, Reduce<kType, Op::MAX>);
}

}  // namespace

MPI_Datatype MpiApi::TypeOf(c10::ScalarType dtype) const {
  const MPI_Datatype type = types[static_cast<int>(dtype)];
  TORCH_CHECK(type != nullptr, "backend=mpi does not carry ",
              c10::toString(dtype));
  return type;
}

MpiApi::Reduction MpiApi::ReductionOf(c10::ScalarType dtype,
                                      const Op& op) const {
  const MPI_Datatype type = TypeOf(dtype);
  const auto& of_type = ops[static_cast<int>(dtype)];
  TORCH_CHECK(op.op_ < std::size(of_type) && of_type[op.op_] != nullptr,
              "backend=mpi reduces by sum, product, min and max only; sum, and "
              "divide or scale the result");
  return {type, of_type[op.op_]};
}

void MpiApi::CreateReductions() {
  CreateOps<c10::kHalf>(*this);
  CreateOps<c10::kBFloat16>(*this);
}

int MpiApi::CheckedTag(int tag) const {
  TORCH_CHECK(tag >= 0 && tag <= largest_tag, "the message's tag is ", tag,
              ", and this MPI carries 0 to ", largest_tag,
              "; with OpenMPI, choose another transport (OMPI_MCA_pml=ob1), or "
              "use --backend=gloo");
  return tag;
}

void MpiApi::Check(int result, const char* call) const {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  Error_string(result, text, &length);
  C10_THROW_ERROR(DistBackendError, absl::StrCat(call, ": ", text));
}

int MpiCount(int64_t count) {
  TORCH_CHECK(count <= INT_MAX, "one MPI call handles at most ", INT_MAX,
              " elements, got ", count, "; split the tensor");
  return static_cast<int>(count);
}

absl::StatusOr<MpiApi*> LoadMpi() {
  static auto& loaded = *new absl::StatusOr<MpiApi>(Load());
  RETURN_IF_ERROR(loaded.status());
  return &*loaded;
}

}  // namespace rankwise
