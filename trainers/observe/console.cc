#include "trainers/observe/console.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "parallel/clock/steady_time.h"

namespace rankwise {
namespace {

constexpr int kBarWidth = 24;
constexpr double kSecondsBetweenBars = 0.1;

std::string Duration(double seconds) {
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60,
                         whole % 60);
}

}  // namespace

Console::Console(const TrainConfig& config, const Worker& worker,
                 const RunLength& length)
    : config_(config),
      worker_(worker),
      length_(length),
      bar_(config.output.show_progress && worker.is_first() &&
           isatty(STDOUT_FILENO) != 0) {}

void Console::Say(const std::string& line) {
  if (!worker_.is_first()) return;
  ClearBar();
  absl::PrintF("%s\n", line);
  std::fflush(stdout);
}

void Console::SayRank(const std::string& line) {
  ClearBar();
  absl::PrintF("rank %d of %d: %s\n", worker_.env.rank, worker_.env.world_size,
               line);
  std::fflush(stdout);
}

bool Console::ShowsLoss(int64_t step_in_epoch) const {
  return step_in_epoch % config_.output.log_every == 0 ||
         step_in_epoch == length_.steps_per_epoch;
}

void Console::StepDone(int64_t step, int64_t step_in_epoch, int64_t epoch,
                       int64_t examples, std::optional<double> loss) {
  step_ = step;
  if (first_step_ == 0) {
    first_step_ = step;
    start_seconds_ = SteadySeconds();
    Say(absl::StrFormat("first step done after %.3f s",
                        SecondsSinceProcessStart()));
    return;
  }
  examples_ += examples;
  if (bar_ && SteadySeconds() - drawn_seconds_ >= kSecondsBetweenBars)
    DrawBar(step_in_epoch, epoch, loss);
}

void Console::Loss(int64_t step_in_epoch, int64_t epoch, double loss) {
  Say(absl::StrFormat("epoch %d/%d  step %d/%d  loss %.4f  %s", epoch,
                      config_.epochs, step_in_epoch, length_.steps_per_epoch,
                      loss, Rate()));
}

void Console::EpochDone(const EpochRecord& record) {
  if (record.examples == 0) return;  // a parameter server
  epoch_examples_ += record.examples;
  epoch_seconds_ += record.seconds;
  std::string line = absl::StrFormat(
      "epoch %d mean training loss %.4f over %d examples, %.1f s", record.epoch,
      record.mean_loss, record.examples, record.seconds);
  if (config_.output.peak.flops_per_second > 0) {
    absl::StrAppendFormat(&line, ", MFU %.2f %%",
                          100 * Mfu(record.examples, record.seconds));
  }
  SayRank(line);
}

void Console::RunDone() {
  const OutputConfig& output = config_.output;
  if (output.peak.flops_per_second <= 0 || epoch_seconds_ <= 0) return;
  const std::string peak =
      output.peak_tflops > 0
          ? absl::StrFormat("--peak_tflops=%g", output.peak_tflops)
          : absl::StrFormat("the measured %.4g TFLOP/s",
                            1e-12 * output.peak.flops_per_second);
  Say(absl::StrFormat(
      "MFU %.2f %%: %.4g training FLOPs per example and device, at %.0f %s on "
      "rank 0, against %s",
      100 * Mfu(epoch_examples_, epoch_seconds_),
      length_.training_flops_per_example,
      length_.unit.Rate(static_cast<double>(epoch_examples_) / epoch_seconds_),
      length_.unit.RateName(), peak));
}

double Console::Mfu(int64_t examples, double seconds) const {
  if (seconds <= 0) return 0;
  return length_.training_flops_per_example * static_cast<double>(examples) /
         seconds / config_.output.peak.flops_per_second;
}

void Console::Evaluated(const EvalRecord& record, bool classification) {
  std::string line = absl::StrFormat("epoch %d test loss %.4f", record.epoch,
                                     record.mean_loss);
  if (classification) {
    absl::StrAppendFormat(&line, ", accuracy %.2f %% (%d of %d)",
                          100.0 * static_cast<double>(record.correct) /
                              static_cast<double>(record.total),
                          record.correct, record.total);
  } else {
    absl::StrAppendFormat(&line, " over %d examples", record.total);
  }
  Say(line);
}

std::string Console::Rate() const {
  const double seconds = SteadySeconds() - start_seconds_;
  const int64_t steps = step_ - first_step_;
  if (steps == 0 || seconds <= 0) return "";
  const double rate = static_cast<double>(examples_) / seconds;
  const double left = seconds / static_cast<double>(steps) *
                      static_cast<double>(length_.total_steps - step_);
  return absl::StrFormat("%.0f %s  ETA %s", length_.unit.Rate(rate),
                         length_.unit.RateName(), Duration(left));
}

void Console::DrawBar(int64_t step_in_epoch, int64_t epoch,
                      std::optional<double> loss) {
  drawn_seconds_ = SteadySeconds();
  const int filled =
      static_cast<int>(kBarWidth * step_in_epoch /
                       std::max<int64_t>(length_.steps_per_epoch, 1));
  const std::string bar = absl::StrCat(std::string(filled, '='),
                                       std::string(kBarWidth - filled, ' '));
  const std::string loss_text =
      loss.has_value() ? absl::StrFormat("loss %.4f  ", *loss) : "";
  absl::PrintF("\r\033[Kepoch %d/%d [%s] %d/%d  %s%s", epoch, config_.epochs,
               bar, step_in_epoch, length_.steps_per_epoch, loss_text, Rate());
  std::fflush(stdout);
  bar_drawn_ = true;
}

void Console::ClearBar() {
  if (bar_drawn_) std::printf("\r\033[K");
  bar_drawn_ = false;
}

double SecondsSinceProcessStart() {
  // Field 22 of /proc/self/stat, counted after the command's closing
  // parenthesis (field 2 may contain anything).
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  std::istringstream fields(
      text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  const double started = std::strtod(field.c_str(), nullptr) /
                         static_cast<double>(sysconf(_SC_CLK_TCK));
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9 - started;
}

}  // namespace rankwise
