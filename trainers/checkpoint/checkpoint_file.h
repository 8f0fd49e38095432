// One file of a checkpoint: a safetensors file with the tensors, or blocks of
// tensors, of one rank. Its metadata are the checkpoint's own and these
// entries:
//
//   rankwise.checkpoint_version  "2"
//   rankwise.step, rankwise.epoch, rankwise.position
//   rankwise.shard      index of the file if there are several: "0/4"
//   rankwise.blocks     JSON: the block in each entry that is not a whole
//                       tensor: { ENTRY: { "tensor": NAME,
//                       "offsets": [INT, ...], "shape": [INT, ...] }, ... },
//                       the offsets and shape in the whole tensor NAME
//   rankwise.checksums  of every chunk of the data, in the order of the file,
//                       16 hexadecimal digits each; chunks are 256 KiB of an
//                       entry, its last one the remainder
//   rankwise.checksum   of the header: of all other metadata, and of the
//                       entries' names, types and shapes
//
// An entry has the name of its tensor; further blocks of the same tensor in a
// file have the suffix "#1", "#2" and so on.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FILE_H_
#define RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {

// Values of the tensor `name`: the whole tensor, or a block that begins at
// `offsets` of a tensor of `whole_shape`.
struct TensorBlock {
  std::string name;
  torch::Tensor values;
  std::vector<int64_t> offsets = {}, whole_shape = {};  // empty for all

  bool whole() const {
    return offsets.empty() || values.sizes() == at::IntArrayRef(whole_shape);
  }
};

// The complete state of a run, from which it continues as if it had never
// stopped; with several files, the part in one of them.
struct Checkpoint {
  int64_t step = 0;      // completed optimizer steps
  int64_t epoch = 0;     // epoch of `position`, from 1
  int64_t position = 0;  // used batches of that epoch

  // Free text, such as {"config", "{...}"}, equal in every file. Names that
  // start with `rankwise.` are reserved.
  std::map<std::string, std::string> metadata;

  // By convention `model.conv1.weight`, `optimizer.exp_avg.conv1.weight`,
  // `rng.cpu`.
  std::vector<TensorBlock> tensors;
};

// Writes `checkpoint` to `path`, tensor by tensor, as ReplaceFile does.
absl::Status SaveCheckpointFile(const std::string& path,
                                const CheckpointName& name,
                                const Checkpoint& checkpoint);

class CheckpointFile {
 public:
  // Reads and checks the header. DataLoss, with the path, for a file that is
  // torn, changed, or does not match `name`. If `header` is given, it is used
  // instead of opening the file.
  static absl::StatusOr<CheckpointFile> Open(
      const std::string& path, const CheckpointName& name,
      const SafetensorsHeaderText* header = nullptr);

  const std::string& path() const { return path_; }
  const Checkpoint& saved() const { return saved_; }  // without tensors

  // Contents of an entry.
  struct Block {
    std::string name;  // of the tensor
    std::vector<int64_t> offsets, shape, whole_shape;
    c10::ScalarType dtype = c10::ScalarType::Float;
    size_t entry = 0;
    int64_t first_chunk = 0;
  };
  const std::vector<Block>& blocks() const { return blocks_; }

  // Returns rows [begin, end) of a block (for a scalar, [0, 1) is the scalar).
  // Reads only the chunks that contain these rows. DataLoss, with the path, if
  // one of these chunks was changed.
  absl::StatusOr<torch::Tensor> ReadRows(const Block& block, int64_t begin,
                                         int64_t end);

 private:
  CheckpointFile(std::string path, SafetensorsHeader header)
      : path_(std::move(path)), header_(std::move(header)) {}
  absl::Status Decode(const CheckpointName& name);
  absl::Status DecodeBlocks(SafetensorsMetadata& metadata);
  absl::Status CheckHeader(SafetensorsMetadata& metadata);
  absl::Status CheckChunks(const torch::Tensor& bytes, int64_t first) const;

  std::string path_;
  SafetensorsHeader header_;
  Checkpoint saved_;
  std::vector<Block> blocks_;  // in the order of the header's entries
  std::string checksum_;       // of the header
  std::string checksums_;      // of the chunks
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_FILE_H_
