#include "trainers/checkpoint/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "trainers/checkpoint/durable_file.h"

namespace rankwise {
namespace {

absl::Status Explain(const absl::Status& status, absl::string_view attempted,
                     const std::string& path) {
  return absl::Status(
      status.code(),
      absl::StrCat("cannot ", attempted, " ", path, ": ", status.message()));
}

absl::StatusOr<SafetensorsHeader> DescribeTensors(
    const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header = {metadata, {}};
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.layout() != torch::kStrided) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "' is not a dense tensor"));
    }
    header.entries.push_back(
        {name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  const absl::Status status = LayOut(header.entries);
  if (!status.ok()) return status;
  return header;
}

absl::Status WriteFile(const std::string& path, const std::string& header_bytes,
                       const std::vector<torch::Tensor>& tensors) {
  auto file = DurableFile::Create(path);
  if (!file.ok()) return file.status();
  absl::Status status =
      (*file)->Append(header_bytes.data(), header_bytes.size());
  for (const torch::Tensor& tensor : tensors) {
    if (!status.ok()) return status;
    const torch::Tensor dense = tensor.detach().cpu().contiguous();
    status = (*file)->Append(dense.const_data_ptr(), dense.nbytes());
  }
  return status.ok() ? (*file)->Commit() : status;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : in_(path, std::ios::binary) {
    std::error_code error;
    if (!in_ || std::filesystem::is_directory(path, error)) {
      status_ = absl::ErrnoToStatus(in_ ? EISDIR : errno, "cannot open it");
      return;
    }
    size_bytes_ = static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (error)
      status_ =
          absl::UnknownError(absl::StrCat("cannot size it: ", error.message()));
  }

  absl::StatusOr<SafetensorsContents> Read() {
    auto header = ReadHeader();
    if (!header.ok()) return header.status();
    SafetensorsContents contents = {{}, std::move(header->metadata)};
    for (const TensorEntry& entry : header->entries) {
      torch::Tensor tensor =
          torch::empty(entry.shape, torch::dtype(entry.dtype));
      ReadBytes(tensor.mutable_data_ptr(), entry.end - entry.begin);
      if (!status_.ok()) return status_;
      contents.tensors.emplace_back(entry.name, std::move(tensor));
    }
    return contents;
  }

  absl::StatusOr<SafetensorsHeader> ReadHeader() {
    uint64_t length = 0;
    ReadBytes(&length, kLengthBytes);
    if (!status_.ok()) return status_;
    const uint64_t rest = static_cast<uint64_t>(size_bytes_ - kLengthBytes);
    if (length > rest || length > kLargestHeaderBytes) {
      return absl::DataLossError(absl::StrCat("at byte 0: a header of ", length,
                                              " bytes is announced, but ", rest,
                                              " bytes follow"));
    }
    std::string text(length, '\0');
    ReadBytes(text.data(), static_cast<int64_t>(length));
    if (!status_.ok()) return status_;
    return ParseHeader(text, static_cast<int64_t>(rest - length));
  }

 private:
  void ReadBytes(void* destination, int64_t size_bytes) {
    if (!status_.ok() || size_bytes == 0) return;
    in_.read(static_cast<char*>(destination), size_bytes);
    if (in_.gcount() != size_bytes) {
      status_ = absl::DataLossError(absl::StrCat(
          "at byte ", read_bytes_ + in_.gcount(), ": the file ends, ",
          size_bytes - in_.gcount(), " bytes short"));
    }
    read_bytes_ += size_bytes;
  }

  std::ifstream in_;
  absl::Status status_;
  int64_t size_bytes_ = 0;
  int64_t read_bytes_ = 0;
};

}  // namespace

absl::Status SaveSafetensors(
    const std::string& path, const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata) {
  const auto header = DescribeTensors(tensors, metadata);
  if (!header.ok()) return Explain(header.status(), "save", path);
  const auto header_bytes = EncodeHeader(*header);
  if (!header_bytes.ok()) return Explain(header_bytes.status(), "save", path);
  std::map<std::string, torch::Tensor> by_name(tensors.begin(), tensors.end());
  std::vector<torch::Tensor> in_file_order;
  for (const TensorEntry& entry : header->entries)
    in_file_order.push_back(by_name[entry.name]);
  return WriteFile(path, *header_bytes, in_file_order);
}

absl::StatusOr<SafetensorsContents> LoadSafetensors(const std::string& path) {
  auto contents = Reader(path).Read();
  if (!contents.ok())
    return Explain(contents.status(), "read safetensors file", path);
  return contents;
}

absl::StatusOr<SafetensorsHeader> LoadSafetensorsHeader(
    const std::string& path) {
  auto header = Reader(path).ReadHeader();
  if (!header.ok())
    return Explain(header.status(), "read safetensors file", path);
  return header;
}

}  // namespace rankwise
