#include "trainers/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Shortens and escapes metadata for messages.
std::string Shown(absl::string_view value) {
  constexpr size_t kLongest = 400;
  return absl::CHexEscape(value.substr(0, kLongest));
}

// Checks that both files are from the same save, by their common metadata.
absl::Status CheckSameSave(const Checkpoint& first,
                           const CheckpointFile& file) {
  const Checkpoint& part = file.saved();
  if (part.epoch != first.epoch || part.position != first.position) {
    return absl::DataLossError(
        absl::StrCat(file.path(), ": its epoch or position is not shard 0's"));
  }
  for (const auto& [key, value] : part.metadata) {
    const auto found = first.metadata.find(key);
    if (found != first.metadata.end() && found->second != value) {
      return absl::DataLossError(
          absl::StrCat(file.path(), ": its ", absl::CHexEscape(key), " is '",
                       Shown(value), "', shard 0's is '", Shown(found->second),
                       "': they are of different runs"));
    }
  }
  return absl::OkStatus();
}

using Block = CheckpointFile::Block;

// Returns whether the blocks, of one tensor, overlap.
bool Overlap(const Block& a, const Block& b) {
  for (size_t i = 0; i < a.shape.size(); ++i) {
    if (a.offsets[i] + a.shape[i] <= b.offsets[i] ||
        b.offsets[i] + b.shape[i] <= a.offsets[i])
      return false;
  }
  return true;
}

// An arbitrary total order of offsets and shapes.
struct BlockOrder {
  using Key = std::pair<at::IntArrayRef, at::IntArrayRef>;
  bool operator()(const Key& a, const Key& b) const {
    const auto less = [](at::IntArrayRef x, at::IntArrayRef y) {
      return std::lexicographical_compare(x.begin(), x.end(), y.begin(),
                                          y.end());
    };
    return less(a.first, b.first) ||
           (a.first == b.first && less(a.second, b.second));
  }
};

// Returns the number of values; -1 if it overflows.
int64_t ValuesIn(const std::vector<int64_t>& shape) {
  int64_t values = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(values, size, &values)) return -1;
  }
  return values;
}

// `path` is the file with the first of the blocks.
absl::Status NotWhole(const std::string& name, const std::string& path) {
  return absl::DataLossError(
      absl::StrCat(path, ": the blocks of the checkpoint's tensor ",
                   absl::CHexEscape(name), " do not make up the whole"));
}

std::string ShapeText(at::IntArrayRef shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

CheckpointHeaders ReadCheckpointHeaders(const CheckpointSet& set) {
  CheckpointHeaders headers;
  for (const auto& [shard, path] : set.paths) {
    auto text = LoadSafetensorsHeaderText(path);
    if (text.ok()) {
      headers[FormatCheckpointName({set.step, shard, set.num_shards})] =
          *std::move(text);
    }
  }
  return headers;
}

absl::StatusOr<CheckpointReader> CheckpointReader::Open(
    const CheckpointSet& set, const CheckpointHeaders& headers) {
  if (!set.complete()) {
    return absl::DataLossError(
        absl::StrCat(set.MissingName(), " is missing: the checkpoint has ",
                     set.paths.size(), " of ", set.num_shards, " shards"));
  }
  CheckpointReader reader;
  for (const auto& [shard, path] : set.paths) {
    const CheckpointName name = {set.step, shard, set.num_shards};
    const auto header = headers.find(FormatCheckpointName(name));
    ASSIGN_OR_RETURN(
        CheckpointFile file,
        CheckpointFile::Open(
            path, name, header == headers.end() ? nullptr : &header->second));
    RETURN_IF_ERROR(reader.Add(std::move(file)));
  }
  RETURN_IF_ERROR(reader.CheckBlocks());
  return reader;
}

absl::Status CheckpointReader::Add(CheckpointFile file) {
  if (!files_.empty()) {
    RETURN_IF_ERROR(CheckSameSave(saved(), file));
  }
  files_.push_back(std::move(file));
  for (size_t i = 0; i < files_.back().blocks().size(); ++i) {
    const Place place{files_.size() - 1, i};
    const CheckpointFile::Block& block = At(place);
    std::vector<Place>& places = tensors_[block.name];
    if (!places.empty() && At(places[0]).whole_shape != block.whole_shape) {
      return absl::DataLossError(absl::StrCat(
          files_.back().path(), ": its tensor ", absl::CHexEscape(block.name),
          " is of shape ", ShapeText(block.whole_shape),
          ", in an earlier shard of ", ShapeText(At(places[0]).whole_shape)));
    }
    places.push_back(place);
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::CheckBlocks() {
  for (auto& [name, places] : tensors_) {
    if (places.size() == 1) continue;
    DropRepeated(places);
    const Place* const overlapping = FindOverlap(places);
    if (overlapping == nullptr) continue;
    return absl::DataLossError(absl::StrCat(
        files_[overlapping->file].path(), ": its block of the tensor ",
        absl::CHexEscape(name), " overlaps another one of the checkpoint"));
  }
  return absl::OkStatus();
}

void CheckpointReader::DropRepeated(std::vector<Place>& places) const {
  std::set<std::pair<at::IntArrayRef, at::IntArrayRef>, BlockOrder> seen;
  std::erase_if(places, [&](const Place& place) {
    return !seen.emplace(At(place).offsets, At(place).shape).second;
  });
}

const CheckpointReader::Place* CheckpointReader::FindOverlap(
    const std::vector<Place>& places) const {
  const size_t dims = At(places[0]).shape.size();
  if (dims == 0) return places.size() > 1 ? &places[1] : nullptr;
  // Sweeps along the dimension with the most distinct offsets and compares each
  // block with those that have begun and not ended.
  size_t along = 0, most = 0;
  for (size_t dim = 0; dim < dims; ++dim) {
    std::set<int64_t> begins;
    for (const Place& place : places) begins.insert(At(place).offsets[dim]);
    if (begins.size() <= most) continue;
    most = begins.size();
    along = dim;
  }
  std::vector<const Place*> order, open;
  for (const Place& place : places) order.push_back(&place);
  absl::c_stable_sort(order, [&](const Place* a, const Place* b) {
    return At(*a).offsets[along] < At(*b).offsets[along];
  });
  for (const Place* place : order) {
    const Block& block = At(*place);
    std::erase_if(open, [&](const Place* other) {
      return At(*other).offsets[along] + At(*other).shape[along] <=
             block.offsets[along];
    });
    const auto other = absl::c_find_if(
        open, [&](const Place* each) { return Overlap(At(*each), block); });
    if (other != open.end()) return std::max(*other, place);  // in file order
    open.push_back(place);
  }
  return nullptr;
}

std::vector<std::string> CheckpointReader::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, places] : tensors_) names.push_back(name);
  return names;
}

absl::Status CheckpointReader::Read(const TensorBlock& block) {
  TensorBlock wanted = block;
  if (block.offsets.empty()) {
    wanted.whole_shape = block.values.sizes().vec();
    wanted.offsets.assign(wanted.whole_shape.size(), 0);
  }
  const auto found = tensors_.find(block.name);
  if (found == tensors_.end()) {
    return absl::DataLossError(
        absl::StrCat("the checkpoint has no tensor ", block.name));
  }
  const std::vector<int64_t>& saved_shape = At(found->second[0]).whole_shape;
  if (saved_shape != wanted.whole_shape) {
    return absl::DataLossError(absl::StrCat(
        "the checkpoint's tensor ", block.name, " has another shape: ",
        ShapeText(saved_shape), ", not ", ShapeText(wanted.whole_shape)));
  }
  int64_t copied = 0;
  for (const Place& place : found->second) {
    ASSIGN_OR_RETURN(const int64_t values, Copy(place, wanted));
    copied += values;
  }
  if (copied == block.values.numel()) return absl::OkStatus();
  return NotWhole(block.name, files_[found->second[0].file].path());
}

// Copies the values that `wanted` has in common with the saved block; returns
// their number.
absl::StatusOr<int64_t> CheckpointReader::Copy(const Place& place,
                                               const TensorBlock& wanted) {
  const at::NoGradGuard no_grad;
  const CheckpointFile::Block& there = At(place);
  torch::Tensor to = wanted.values;
  std::vector<int64_t> from_begin;  // in the saved block
  for (size_t i = 0; i < there.shape.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    const int64_t begin = std::max(there.offsets[i], wanted.offsets[i]);
    const int64_t end = std::min(there.offsets[i] + there.shape[i],
                                 wanted.offsets[i] + wanted.values.size(dim));
    if (begin >= end) return 0;
    to = to.narrow(dim, begin - wanted.offsets[i], end - begin);
    from_begin.push_back(begin - there.offsets[i]);
  }
  const bool scalar = to.dim() == 0;
  const int64_t first = scalar ? 0 : from_begin[0];
  const int64_t rows = scalar ? 1 : to.size(0);
  ASSIGN_OR_RETURN(torch::Tensor from,
                   files_[place.file].ReadRows(there, first, first + rows));
  for (int64_t dim = 1; dim < to.dim(); ++dim)
    from = from.narrow(dim, from_begin[static_cast<size_t>(dim)], to.size(dim));
  to.copy_(from);
  return to.numel();
}

absl::StatusOr<torch::Tensor> CheckpointReader::Read(const std::string& name) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return absl::DataLossError(
        absl::StrCat("the checkpoint has no tensor ", name));
  }
  const Block& block = At(found->second[0]);
  int64_t saved = 0;
  for (const Place& place : found->second) saved += ValuesIn(At(place).shape);
  if (saved != ValuesIn(block.whole_shape))
    return NotWhole(name, files_[found->second[0].file].path());
  const torch::Tensor values =
      torch::empty(block.whole_shape, torch::dtype(block.dtype));
  RETURN_IF_ERROR(Read({name, values}));
  return values;
}

}  // namespace rankwise
