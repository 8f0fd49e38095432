// What a person sees of a run while it runs.
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

// How long a run is, and what its examples are and cost.
struct RunLength {
  int64_t steps_per_epoch = 1;
  int64_t total_steps = 1;  // of the whole run
  ExampleUnit unit = {};    // of the rates
  // Of the part of the model that one device holds: forward and backward.
  double training_flops_per_example = 0;
};

// Not thread-safe.
class Console {
 public:
  // `config` and `worker` must outlive it.
  Console(const TrainConfig& config, const Worker& worker,
          const RunLength& length);

  // A line of the whole run (rank 0 only).
  void Say(const std::string& line);
  // A line that every rank prints, with its rank in front.
  void SayRank(const std::string& line);

  // True if the step is one whose line shows the loss.
  bool ShowsLoss(int64_t step_in_epoch) const;
  // After every step: redraws the bar. `examples`: of all ranks in this step;
  // `loss`: the newest that has been read, if one has.
  void StepDone(int64_t step, int64_t step_in_epoch, int64_t epoch,
                int64_t examples, std::optional<double> loss);
  // At a step that ShowsLoss.
  void Loss(int64_t step_in_epoch, int64_t epoch, double loss);

  // With the MFU (model FLOPs utilisation; Chowdhery et al. 2022, "PaLM",
  // appendix B): what the model needs for this rank's examples, as a share of
  // the peak in that time.
  void EpochDone(const EpochRecord& record);
  // After the last epoch: the MFU over all.
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
  double start_seconds_ = 0;  // after the first step, which also warms up
  double drawn_seconds_ = 0;  // the bar, last
  int64_t first_step_ = 0;
  int64_t step_ = 0;
  int64_t examples_ = 0;        // of all ranks since start_
  int64_t epoch_examples_ = 0;  // this rank's in whole epochs
  double epoch_seconds_ = 0;    // of those
  bool bar_drawn_ = false;
};

// Seconds since this process was started, as the kernel knows it (to 10 ms).
double SecondsSinceProcessStart();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_CONSOLE_H_
