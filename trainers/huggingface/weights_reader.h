// Reads weights from a Hugging Face folder.
#ifndef RANKWISE_TRAINERS_HUGGINGFACE_WEIGHTS_READER_H_
#define RANKWISE_TRAINERS_HUGGINGFACE_WEIGHTS_READER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainers/checkpoint/checkpoint_file.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/huggingface/config_file.h"
#include "trainers/huggingface/tensor_names.h"

namespace rankwise {

// The weights in model.safetensors, or in the shards that
// model.safetensors.index.json lists. Opening a folder checks all headers and
// reads no data. Not thread-safe.
class HuggingFaceWeights {
 public:
  // Checks that the files have exactly the tensors of a model of `config`, of
  // type F32, F16 or BF16; like transformers, ignores rotary_emb.inv_freq and,
  // if the head is tied, lm_head.weight. Errors name the file, the tensor and
  // what was expected: NotFound for a missing file, DataLoss for a torn one,
  // InvalidArgument for other contents.
  static absl::StatusOr<HuggingFaceWeights> Open(
      const std::string& dir, const HuggingFaceConfig& config);

  // Fills `block.values`, of any type and on any device, where `block.name` is
  // the name of our parameter ("block0.attention.qkv.weight"). Reads only the
  // rows in `block`, some at a time. InvalidArgument for another name or shape;
  // DataLoss if a file ends early.
  absl::Status Read(const TensorBlock& block) const;

 private:
  struct File {
    std::string path;
    SafetensorsHeader header;
  };
  struct Place {
    size_t file = 0, entry = 0;
  };

  absl::Status OpenFiles(const std::string& dir);
  absl::Status OpenShards(const std::string& index_path);
  absl::Status AddFile(const std::string& path);
  absl::Status CheckTensors(const std::string& dir,
                            const HuggingFaceConfig& config) const;
  absl::Status CheckTensor(const std::string& dir,
                           const HuggingFaceTensor& expected) const;
  const TensorEntry& EntryAt(const Place& place) const {
    return files_[place.file].header.entries[place.entry];
  }
  absl::Status ReadRows(const Place& place, int64_t begin, int64_t first_column,
                        const torch::Tensor& to) const;

  std::vector<File> files_;
  std::map<std::string, Place> tensors_;  // by Hugging Face's name
  std::map<std::string, HuggingFaceParameter> parameters_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_HUGGINGFACE_WEIGHTS_READER_H_
