// A run's output on the console.
#ifndef RANKWISE_TRAINERS_OBSERVE_CONSOLE_H_
#define RANKWISE_TRAINERS_OBSERVE_CONSOLE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "records/example_unit.h"
#include "records/record.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// A run's length, and the unit and cost of its examples.
struct RunLength {
  int64_t steps_per_epoch = 1;
  int64_t total_steps = 1;  // of the whole run
  ExampleUnit unit = {};    // unit of the rates
  // Forward and backward of the part of the model that one device holds.
  double training_flops_per_example = 0;
};

// Not thread-safe.
class Console {
 public:
  // `config` and `worker` must outlive it.
  Console(const TrainConfig& config, const Worker& worker,
          const RunLength& length);

  // Prints a line for the whole run (rank 0 only).
  void Say(const std::string& line);
  // Prints a line on every rank, preceded by its rank.
  void SayRank(const std::string& line);

  // Returns whether the loss is printed after this step.
  bool ShowsLoss(int64_t step_in_epoch) const;
  // Call after every step; redraws the progress bar. `examples`: of all ranks
  // in this step; `loss`: the newest loss read, if any.
  void StepDone(int64_t step, int64_t step_in_epoch, int64_t epoch,
                int64_t examples, std::optional<double> loss);
  // Call after a step for which ShowsLoss returns true.
  void Loss(int64_t step_in_epoch, int64_t epoch, double loss);

  // Prints the epoch's results, with the MFU (model FLOPs utilisation;
  // Chowdhery et al. 2022, "PaLM", appendix B): the FLOPs that the model needs
  // for this rank's examples, as a fraction of the peak over that time.
  void EpochDone(const EpochRecord& record);
  // Call after the last epoch; prints the MFU of the whole run.
  void RunDone();
  void Evaluated(const EvalRecord& record, bool classification);

 private:
  std::string Rate() const;  // "1520 images/s  ETA 0:25"
  double Mfu(int64_t examples, double seconds) const;
  void DrawBar(int64_t step_in_epoch, int64_t epoch,
               std::optional<double> loss);
  void ClearBar();

  const TrainConfig& config_;
  const Worker& worker_;
  const RunLength length_;
  const bool bar_;            // on a terminal
  double start_seconds_ = 0;  // end of the first step, which also warms up
  double drawn_seconds_ = 0;  // last time the bar was drawn
  int64_t first_step_ = 0;
  int64_t step_ = 0;
  int64_t examples_ = 0;        // of all ranks since start_seconds_
  int64_t epoch_examples_ = 0;  // of this rank, in whole epochs
  double epoch_seconds_ = 0;    // of the same epochs
  bool bar_drawn_ = false;
};

// Returns the seconds since this process started, by the kernel (to 10 ms).
double SecondsSinceProcessStart();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_CONSOLE_H_
