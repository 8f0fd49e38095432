// Flags that pipeline and hybrid share.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "trainers/flag_rules.h"

TRAINER_FLAG(
    kSpeed, std::string, schedule, "1f1b",
    absl::StrCat(
        absl::StrJoin(rankwise::ScheduleNames(), ", "),
        " (planned from the times measured by --split=time, otherwise for F = "
        "I = W, and replanned from the times of the first steps; "
        "zero_bubble_auto:6 holds at most 6 micro-batches per rank, by default "
        "the number of ranks), "
        "or the path of a CSV file (docs/pipeline.md)"));
TRAINER_FLAG(kLayout, int, pp, 0,
             "ranks per pipeline; if 0, all ranks / --dp (hybrid: 1)");
TRAINER_FLAG(
    kLayout, int, dp, 0,
    "replicas of the model, each with its own data; if 0, the ranks left "
    "over by the other axes of the mesh");
TRAINER_FLAG(kBatch, int64_t, microbatches, 8,
             "micro-batches of --batch_size examples per optimizer step and "
             "replica");
TRAINER_FLAG(kSpeed, int, chunks, 0,
             "stages per rank; if 0, the schedule's default (2 for "
             "interleaved_1f1b, zbv and dualpipev)");
