#include "trainers/peak/peak_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "records/replace_file.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using nlohmann::json;

// Holds an exclusive lock during its lifetime.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ < 0) return;
    int locked;
    while ((locked = flock(file_, LOCK_EX)) != 0 && errno == EINTR) {
    }
    if (locked != 0) Close();
  }
  ~FileLock() { Close(); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return file_ >= 0; }

 private:
  void Close() {
    const int error = errno;
    if (file_ >= 0) close(file_);
    file_ = -1;
    errno = error;
  }

  int file_;
};

// A disturbed measurement is repeated after a minute. After this many without
// an undisturbed one, the machine may always be busy, and the next one is made
// after an hour.
constexpr int kManyDisturbed = 5;
constexpr std::chrono::minutes kDisturbedIsGoodFor(1), kManyAreGoodFor(60);

// Contents of a file.
struct KeptPeak {
  DevicePeak peak;
  int disturbed = 0;  // consecutive measurements, up to the last one
};

double NumberOf(const json& file, const char* name) {
  const auto found = file.find(name);
  return found != file.end() && found->is_number() ? found->get<double>() : 0;
}

bool IsRate(double rate) { return std::isfinite(rate) && rate > 0; }

std::optional<KeptPeak> ReadKept(const std::string& path, const PeakKey& key) {
  std::ifstream text(path);
  const json file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object() || file.value("of", json()) != json(key))
    return std::nullopt;
  const KeptPeak kept = {
      {NumberOf(file, "flops_per_second"), NumberOf(file, "bytes_per_second")},
      static_cast<int>(std::clamp(NumberOf(file, "disturbed_measurements"), 0.0,
                                  static_cast<double>(kManyDisturbed)))};
  if (!IsRate(kept.peak.flops_per_second) ||
      !IsRate(kept.peak.bytes_per_second))
    return std::nullopt;
  return kept;
}

bool IsOlderThan(std::chrono::minutes age, const std::string& path) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  return error || std::filesystem::file_time_type::clock::now() - written > age;
}

}  // namespace

std::string PeakPath(const std::string& folder, const PeakKey& key) {
  return absl::StrCat(folder, "/peak-", HashFlags(key), ".json");
}

std::optional<DevicePeak> ReadPeak(const std::string& path,
                                   const PeakKey& key) {
  const auto kept = ReadKept(path, key);
  if (!kept.has_value()) return std::nullopt;
  const auto good_for =
      kept->disturbed < kManyDisturbed ? kDisturbedIsGoodFor : kManyAreGoodFor;
  if (kept->disturbed > 0 && IsOlderThan(good_for, path)) return std::nullopt;
  return kept->peak;
}

absl::Status WritePeak(const std::string& path, const PeakKey& key,
                       const MeasuredPeak& measured) {
  const KeptPeak before = ReadKept(path, key).value_or(KeptPeak());
  const auto larger = [&](double DevicePeak::*rate) {
    return std::max(measured.peak.*rate, before.peak.*rate);
  };
  const json file = {
      {"of", key},
      {"flops_per_second", larger(&DevicePeak::flops_per_second)},
      {"bytes_per_second", larger(&DevicePeak::bytes_per_second)},
      {"disturbed_measurements", measured.disturbed ? before.disturbed + 1 : 0},
  };
  return ReplaceFile(path, file.dump(2) + "\n");
}

absl::StatusOr<DevicePeak> PeakOnce(
    const std::string& path, const PeakKey& key,
    const std::function<absl::Status()>& measure) {
  if (const auto known = ReadPeak(path, key)) return *known;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      error);
  const std::string lock_path = path + ".lock";
  const FileLock lock(lock_path);
  if (!lock.held())
    return absl::UnavailableError(
        absl::StrCat("cannot lock ", lock_path, ": ", strerror(errno)));
  // Another process may have measured it while holding the lock.
  if (const auto known = ReadPeak(path, key)) return *known;
  RETURN_IF_ERROR(measure());
  const auto measured = ReadPeak(path, key);
  if (measured.has_value()) return *measured;
  return absl::DataLossError(
      absl::StrCat("no measured peak was stored in ", path));
}

}  // namespace rankwise
