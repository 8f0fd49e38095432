#include "comm_bench/collectives/collective.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/core/ScalarType.h"
#include "c10/util/Exception.h"
#include "comm_bench/collectives/entries.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "records/text.h"

namespace rankwise::comm_bench {
namespace {

// Each with its alias, or "".
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

// Each of these returns why the call cannot run, or "".

std::string RanksReason(const Collective& collective, const Call& call) {
  if (call.world_size < collective.min_world_size) {
    return absl::StrCat(" needs at least ", collective.min_world_size,
                        " ranks; the group has ", call.world_size);
  }
  if (collective.rooted && (call.root < 0 || call.root >= call.world_size)) {
    return absl::StrCat(" with --root=", call.root,
                        ": the group's ranks are 0 to ", call.world_size - 1);
  }
  return "";
}

std::string OpReason(const Collective& collective, const Call& call) {
  if (!collective.reduces || call.op != ReduceOp::AVG ||
      c10::isFloatingType(call.dtype)) {
    return "";
  }
  return absl::StrCat(" of ", DtypeName(call.dtype), " with op avg: ",
                      "the average of integers is not an integer");
}

std::string PlaceReason(const Collective& collective, const Call& call) {
  if (call.in_place && !collective.has_elements) {
    return " has no buffers that it could run in place on";
  }
  if (call.in_place && !collective.in_place) {
    return " cannot run in place: its output would overwrite data that it has "
           "yet to send; run it out of place";
  }
  return "";
}

std::string CountReason(const Collective& collective, const Call& call) {
  if (!collective.has_elements) return "";
  if (call.count <= 0) {
    return absl::StrCat(" of ", call.count,
                        " elements: the count must be at least 1");
  }
  const int64_t granule = collective.granularity(call.world_size);
  if (call.count % granule == 0) return "";
  return absl::StrCat(" of ", Counted(call.count, "element"), " over ",
                      Counted(call.world_size, "rank"),
                      ": the count must be a multiple of ", granule);
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

int64_t Call::bytes() const {
  return count * static_cast<int64_t>(c10::elementSize(dtype));
}

const std::vector<const Collective*>& AllCollectives() {
  static const auto* const all = new std::vector<const Collective*>{
      &kAllReduce, &kAllGather,     &kReduceScatter, &kBroadcast, &kReduce,
      &kAllToAll,  &kAllToAllV,     &kGather,        &kScatter,   &kSendRecv,
      &kPingPong,  &kBidirectional, &kBarrier,
  };
  return *all;
}

absl::StatusOr<const Collective*> FindCollective(const std::string& name) {
  for (const Collective* collective : AllCollectives()) {
    if (name == collective->name) return collective;
  }
  const auto append = [](std::string* out, const Collective* collective) {
    *out += collective->name;
  };
  return Unknown("collective", name,
                 absl::StrJoin(AllCollectives(), ", ", append));
}

absl::Status CheckCall(const Collective& collective, const Call& call) {
  for (const auto reason_of :
       {RanksReason, OpReason, PlaceReason, CountReason}) {
    const std::string reason = reason_of(collective, call);
    if (!reason.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(collective.name, reason));
    }
  }
  if (collective.refuse == nullptr) return absl::OkStatus();
  return collective.refuse(call);
}

std::vector<NcclGroup> NcclCallsOf(const Collective& collective,
                                   const Call& call) {
  TORCH_CHECK(collective.nccl_calls != nullptr, "nccl.h has no ",
              collective.name);
  std::vector<NcclGroup> groups = collective.nccl_calls(call);
  std::erase_if(groups, [](const NcclGroup& group) { return group.empty(); });
  return groups;
}

int64_t CountFor(const Collective& collective, int64_t bytes,
                 c10::ScalarType dtype, int world_size) {
  if (!collective.has_elements) return 0;
  const int64_t granule = collective.granularity(world_size);
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  return std::max<int64_t>(bytes / element_bytes / granule, 1) * granule;
}

}  // namespace rankwise::comm_bench
