#include "comm_bench/collectives/element_types.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/comm/diagnosis/collective_log.h"

namespace rankwise::comm_bench {
namespace {

// With the second name that each has, "" where there is none.
constexpr std::pair<c10::ScalarType, const char*> kDtypes[] = {
    {at::kFloat, "fp32"},    {at::kDouble, "fp64"}, {at::kHalf, "fp16"},
    {at::kBFloat16, "bf16"}, {at::kInt, ""},        {at::kLong, ""},
    {at::kByte, ""},
};

constexpr std::pair<ReduceOp, const char*> kOps[] = {
    {ReduceOp::SUM, "sum"}, {ReduceOp::AVG, "avg"},      {ReduceOp::MIN, "min"},
    {ReduceOp::MAX, "max"}, {ReduceOp::PRODUCT, "prod"},
};

template <typename Key, size_t size>
std::vector<Key> KeysOf(const std::pair<Key, const char*> (&table)[size]) {
  std::vector<Key> keys;
  for (const auto& [key, name] : table) keys.push_back(key);
  return keys;
}

absl::Status Unknown(const char* what, const std::string& name,
                     const std::string& known) {
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", what, " '", name, "'; there are ", known));
}

}  // namespace

const std::vector<c10::ScalarType>& AllDtypes() {
  static const auto& all = *new std::vector<c10::ScalarType>(KeysOf(kDtypes));
  return all;
}

const std::vector<ReduceOp>& AllOps() {
  static const auto& all = *new std::vector<ReduceOp>(KeysOf(kOps));
  return all;
}

std::string DtypeName(c10::ScalarType dtype) { return PythonDtypeName(dtype); }

absl::StatusOr<c10::ScalarType> ParseDtype(const std::string& name) {
  for (const auto& [dtype, alias] : kDtypes) {
    if (!name.empty() && (name == DtypeName(dtype) || name == alias)) {
      return dtype;
    }
  }
  const auto append = [](std::string* out, const auto& known) {
    const auto& [dtype, alias] = known;
    absl::StrAppend(out, DtypeName(dtype),
                    *alias == '\0' ? "" : absl::StrCat(" (", alias, ")"));
  };
  return Unknown("dtype", name, absl::StrJoin(kDtypes, ", ", append));
}

std::string OpName(ReduceOp op) {
  for (const auto& [known, name] : kOps) {
    if (known == op) return name;
  }
  return "";
}

absl::StatusOr<ReduceOp> ParseOp(const std::string& name) {
  for (const ReduceOp op : AllOps()) {
    if (name == OpName(op)) return op;
  }
  const auto append = [](std::string* out, ReduceOp op) { *out += OpName(op); };
  return Unknown("op", name, absl::StrJoin(AllOps(), ", ", append));
}

}  // namespace rankwise::comm_bench
