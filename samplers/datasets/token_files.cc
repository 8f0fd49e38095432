// Files of token ids, in the formats of llm.c (https://github.com/karpathy/
// llm.c, dev/data/data_common.py) and nanoGPT (https://github.com/karpathy/
// nanoGPT, data/*/prepare.py). All numbers are little-endian.
//
//   file   = header ids | ids
//   header = magic:int32 version:int32 count:int32 unused:int32[253]
//   ids    = uint16[count] | uint32[count]
//
// With llm.c's header, magic 20240520 and version 1 announce uint16 ids, magic
// 20240801 and version 7 uint32 ids. Without a header (nanoGPT) ids are uint16
// if the vocabulary has at most 65,536 values, otherwise uint32.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "samplers/datasets/dataset.h"
#include "samplers/datasets/mapped_file.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

struct Format {
  int32_t magic, version;
  int64_t id_bytes;
};

constexpr Format kFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};
constexpr int64_t kHeaderBytes = 256 * sizeof(int32_t);
constexpr int64_t kMostUint16Values = 65536;
constexpr char kHowToWrite[] =
    "write such files with examples/tokenize_text.py or llm.c's scripts";

struct TokenFile {
  std::string path;
  MappedFile file;
  int64_t header_bytes = 0;
  int64_t id_bytes = 0;  // 2 or 4

  int64_t size() const { return (file.size - header_bytes) / id_bytes; }

  // Copies the ids first .. first + count - 1.
  void Read(int64_t first, int64_t count, int64_t* ids) const {
    const uint8_t* from = file.data.get() + header_bytes + first * id_bytes;
    if (id_bytes == 2) {
      std::copy_n(reinterpret_cast<const uint16_t*>(from), count, ids);
    } else {
      std::copy_n(reinterpret_cast<const uint32_t*>(from), count, ids);
    }
  }
};

template <typename... Parts>
absl::Status Refused(const TokenFile& file, const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat("tokens: ", file.path, " ", parts...));
}

absl::Status CheckHeader(const TokenFile& file, const Format& format,
                         int32_t version, int32_t count) {
  if (version != format.version) {
    return Refused(file, "has version ", version, " of llm.c's format ",
                   format.magic, ", of which only version ", format.version,
                   " is supported; ", kHowToWrite);
  }
  const int64_t bytes = kHeaderBytes + count * format.id_bytes;
  if (count >= 0 && file.file.size == bytes) return absl::OkStatus();
  return Refused(file, "has ", file.file.size, " bytes, but its header says ",
                 count, " ids of ", format.id_bytes, " bytes, which makes ",
                 bytes,
                 "; it is incomplete or damaged: copy or write it again");
}

// Checks a file without a header, read as ids of file.id_bytes.
absl::Status CheckWidth(const TokenFile& file) {
  if (file.file.size % file.id_bytes != 0) {
    return Refused(file, "has ", file.file.size,
                   " bytes, which is not a multiple of ", file.id_bytes,
                   ", the size of an id for this vocabulary (the file has no "
                   "header of llm.c); ",
                   kHowToWrite);
  }
  std::vector<int64_t> ids(std::min<int64_t>(file.size(), 1024));
  file.Read(0, std::ssize(ids), ids.data());
  int64_t pairs = 0, low = 0, high = 0;  // sums of the halves of uint32 ids
  for (; 2 * pairs + 1 < std::ssize(ids); ++pairs) {
    low += ids[2 * pairs];
    high += ids[2 * pairs + 1];
  }
  if (file.id_bytes == 4 || pairs < 8 || low == 0 || high > 0)
    return absl::OkStatus();
  return Refused(file,
                 "seems to hold uint32 ids: as uint16, the width for this "
                 "vocabulary, every second id of the first ",
                 ids.size(),
                 " is 0; write it as uint16, or with llm.c's header");
}

absl::StatusOr<TokenFile> OpenTokenFile(const std::string& path,
                                        int64_t vocabulary) {
  absl::StatusOr<MappedFile> mapped = OpenMapped(path);
  if (absl::IsNotFound(mapped.status())) {
    return absl::NotFoundError(absl::StrCat(
        "tokens: there is no file or folder ", path,
        "; name a file of token ids, or a folder with *train*.bin files, by "
        "--data_dir"));
  }
  RETURN_IF_ERROR(mapped.status());
  TokenFile file{.path = path,
                 .file = *std::move(mapped),
                 .id_bytes = vocabulary <= kMostUint16Values ? 2 : 4};
  if (file.file.size == 0) return Refused(file, "is empty; ", kHowToWrite);
  int32_t header[3] = {};  // magic, version, count
  if (file.file.size >= static_cast<int64_t>(sizeof(header)))
    std::memcpy(header, file.file.data.get(), sizeof(header));
  for (const Format& format : kFormats) {
    if (header[0] != format.magic) continue;
    RETURN_IF_ERROR(CheckHeader(file, format, header[1], header[2]));
    file.header_bytes = kHeaderBytes;
    file.id_bytes = format.id_bytes;
    return file;
  }
  RETURN_IF_ERROR(CheckWidth(file));
  return file;
}

// The windows of several files, in their order.
struct TokenWindows {
  int64_t sequence_length = 0, vocabulary = 0;
  std::vector<TokenFile> files = {};
  std::vector<int64_t> first_windows = {};  // of each file
  int64_t size = 0;
  int64_t skipped = 0;  // windows before the split

  absl::Status Add(TokenFile file) {
    const int64_t windows = file.size() / (sequence_length + 1);
    if (windows == 0) {
      return Refused(file, "has ", file.size(), " ids, but a window has ",
                     sequence_length + 1, " (", sequence_length,
                     " tokens and the one after the last); take a longer file "
                     "or a smaller --sequence_length");
    }
    std::vector<int64_t> ids(sequence_length + 1);
    file.Read(0, std::ssize(ids), ids.data());
    RETURN_IF_ERROR(Check(file, 0, ids));
    first_windows.push_back(size);
    size += windows;
    files.push_back(std::move(file));
    return absl::OkStatus();
  }

  // Keeps only the last tenth, or only the rest.
  void HoldOut(Split split) {
    const int64_t test = size / 10;
    if (split == Split::kTest) skipped = size - test;
    size = split == Split::kTest ? test : size - test;
  }

  // Checks ids that were read from position `first` on.
  absl::Status Check(const TokenFile& file, int64_t first,
                     absl::Span<const int64_t> ids) const {
    for (const int64_t& id : ids) {
      if (id < vocabulary) continue;
      const int64_t position = first + (&id - ids.data());
      return Refused(
          file, "has the id ", id, " at position ", position, " (byte offset ",
          file.header_bytes + position * file.id_bytes,
          "), but the model's vocabulary is 0 .. ", vocabulary - 1,
          "; tokenize for this vocabulary, or take a --model_size with a "
          "larger one",
          file.header_bytes > 0
              ? ""
              : absl::StrCat(". If the file does not hold uint",
                             8 * file.id_bytes,
                             " ids, the width for this vocabulary, write it "
                             "with llm.c's header"));
    }
    return absl::OkStatus();
  }

  void operator()(int64_t index, int64_t* tokens, int64_t* next_tokens) const {
    const int64_t window = skipped + index;
    const int64_t at =
        std::upper_bound(first_windows.begin(), first_windows.end(), window) -
        first_windows.begin() - 1;
    const int64_t first = (window - first_windows[at]) * (sequence_length + 1);
    files[at].Read(first, sequence_length, tokens);
    files[at].Read(first + 1, sequence_length, next_tokens);
    absl::Status checked = Check(files[at], first, {tokens, 1});
    checked.Update(Check(files[at], first + 1,
                         absl::MakeConstSpan(next_tokens, sequence_length)));
    TORCH_CHECK_VALUE(checked.ok(), checked.message());
  }
};

// The files that contain a split.
struct SplitFiles {
  std::vector<std::string> paths;
  bool both_splits = false;  // whether they contain the other split too
};

absl::StatusOr<SplitFiles> FindSplit(const std::string& path, Split split) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    return SplitFiles{{path}, /*both_splits=*/true};
  ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(path));
  std::vector<std::string> train, test;
  int64_t others = 0;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename().string();
    if (!absl::EndsWith(name, ".bin")) continue;
    if (absl::StrContains(name, "train")) {
      train.push_back(file);
    } else if (absl::StrContains(name, "val")) {
      test.push_back(file);
    } else {
      ++others;
    }
  }
  if (train.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokens: the folder ", path, " holds no *train*.bin file, but ",
        test.size(), " *val*.bin and ", others, " other .bin files; name a ",
        "file of token ids, or a folder with *train*.bin files, by "
        "--data_dir: ",
        kHowToWrite));
  }
  if (split == Split::kTest && !test.empty()) return SplitFiles{test};
  return SplitFiles{train, /*both_splits=*/test.empty()};
}

}  // namespace

DatasetOr OpenTokenFiles(const DatasetConfig& config, Split split) {
  const int64_t sequence_length = config.sequence_length;
  if (config.num_classes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: ", config.data_dir,
                     " is for models with a vocabulary, such as --model=gpt"));
  }
  ASSIGN_OR_RETURN(const SplitFiles found, FindSplit(config.data_dir, split));
  TokenWindows windows{sequence_length, config.num_classes};
  for (const std::string& path : found.paths) {
    ASSIGN_OR_RETURN(TokenFile file, OpenTokenFile(path, config.num_classes));
    RETURN_IF_ERROR(windows.Add(std::move(file)));
  }
  if (found.both_splits) windows.HoldOut(split);
  if (windows.size == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokens: ", config.data_dir, " has fewer than 10 windows of ",
        sequence_length + 1,
        " ids, the last tenth of which is the test split; "
        "add a *val*.bin file, take a smaller --sequence_length, or pass "
        "--eval=false"));
  }
  return std::make_unique<WrittenDataset<int64_t, int64_t>>(
      DatasetFacts{.name = "tokens",
                   .size = std::min(config.size(split), windows.size),
                   .example_shape = {sequence_length},
                   .target_shape = {sequence_length},
                   .num_classes = config.num_classes},
      std::move(windows));
}

}  // namespace rankwise
