#include "comm_bench/collectives/element_types.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/comm/diagnosis/collective_log.h"

namespace rankwise::comm_bench {
namespace {

struct Dtype {
  c10::ScalarType type;
  const char* alias;  // "" where there is none
};

constexpr Dtype kDtypes[] = {
    {c10::ScalarType::Float, "fp32"}, {c10::ScalarType::Double, "fp64"},
    {c10::ScalarType::Half, "fp16"},  {c10::ScalarType::BFloat16, "bf16"},
    {c10::ScalarType::Int, ""},       {c10::ScalarType::Long, ""},
    {c10::ScalarType::Byte, ""},
};

struct Op {
  ReduceOp op;
  const char* name;
};

constexpr Op kOps[] = {
    {ReduceOp::kSum, "sum"},      {ReduceOp::kAverage, "avg"},
    {ReduceOp::kMin, "min"},      {ReduceOp::kMax, "max"},
    {ReduceOp::kProduct, "prod"},
};

void AppendDtype(std::string* out, const Dtype& dtype) {
  absl::StrAppend(out, DtypeName(dtype.type));
  if (*dtype.alias != '\0') absl::StrAppend(out, " (", dtype.alias, ")");
}

void AppendOp(std::string* out, const Op& op) { out->append(op.name); }

}  // namespace

const std::vector<c10::ScalarType>& AllDtypes() {
  static const auto* const all = [] {
    auto* types = new std::vector<c10::ScalarType>;
    for (const Dtype& dtype : kDtypes) types->push_back(dtype.type);
    return types;
  }();
  return *all;
}

const std::vector<ReduceOp>& AllOps() {
  static const auto* const all = [] {
    auto* ops = new std::vector<ReduceOp>;
    for (const Op& op : kOps) ops->push_back(op.op);
    return ops;
  }();
  return *all;
}

std::string DtypeName(c10::ScalarType dtype) { return PythonDtypeName(dtype); }

absl::StatusOr<c10::ScalarType> ParseDtype(const std::string& name) {
  for (const Dtype& known : kDtypes) {
    if (!name.empty() &&
        (name == DtypeName(known.type) || name == known.alias)) {
      return known.type;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown dtype '", name, "'; there are ",
                   absl::StrJoin(kDtypes, ", ", AppendDtype)));
}

std::string OpName(ReduceOp op) {
  for (const Op& known : kOps) {
    if (known.op == op) return known.name;
  }
  return "";
}

absl::StatusOr<ReduceOp> ParseOp(const std::string& name) {
  for (const Op& known : kOps) {
    if (name == known.name) return known.op;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown op '", name, "'; there are ",
                   absl::StrJoin(kOps, ", ", AppendOp)));
}

}  // namespace rankwise::comm_bench
