// Reads a checkpoint on the disk as a whole, in any number of files.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_READER_H_
#define RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_READER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "trainers/checkpoint/checkpoint_file.h"
#include "trainers/checkpoint/checkpoint_folder.h"

namespace rankwise {

// Headers of a checkpoint's files, by file name.
using CheckpointHeaders = std::map<std::string, SafetensorsHeaderText>;

// Returns the headers of the readable files of `set`.
CheckpointHeaders ReadCheckpointHeaders(const CheckpointSet& set);

// The files' headers together are the index of their tensors: opening a
// checkpoint checks all headers and reads no data. Not thread-safe.
class CheckpointReader {
 public:
  // DataLoss names a file that is torn, missing, or from a different save than
  // the first file (their metadata disagree). A file with an entry in `headers`
  // is opened only when data are read from it; if its header has changed by
  // then, Read returns the DataLoss.
  static absl::StatusOr<CheckpointReader> Open(
      const CheckpointSet& set, const CheckpointHeaders& headers = {});

  // Step, epoch, position and metadata of the first file.
  const Checkpoint& saved() const { return files_.front().saved(); }
  bool Has(const std::string& name) const { return tensors_.count(name) > 0; }
  std::vector<std::string> Names() const;

  // Fills `block.values`, on any device, from the files that have some of them,
  // reading no more than needed; the saved blocks may differ from `block`.
  // DataLoss if the checkpoint has no such tensor or one of another shape, or
  // if the data read have been changed.
  absl::Status Read(const TensorBlock& block);

  // Returns a whole tensor on the CPU.
  absl::StatusOr<torch::Tensor> Read(const std::string& name);

 private:
  // Location of a block.
  struct Place {
    size_t file = 0, block = 0;
  };

  absl::Status Add(CheckpointFile file);
  // Call after the last file. If several files have the same block, it is read
  // from the first; DataLoss names a file whose block overlaps another one.
  absl::Status CheckBlocks();
  void DropRepeated(std::vector<Place>& places) const;
  // Returns the later of two places whose blocks overlap, or nullptr.
  const Place* FindOverlap(const std::vector<Place>& places) const;
  const CheckpointFile::Block& At(const Place& place) const {
    return files_[place.file].blocks()[place.block];
  }
  absl::StatusOr<int64_t> Copy(const Place& place, const TensorBlock& block);

  std::vector<CheckpointFile> files_;
  std::map<std::string, std::vector<Place>> tensors_;  // by name
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_CHECKPOINT_READER_H_
