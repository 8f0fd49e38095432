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
        " (planned from the times that --split=time measured, otherwise for F "
        "= I = W, and again from the times of the first steps; "
        "zero_bubble_auto:6 keeps at most 6 micro-batches per rank, the "
        "default is the number of ranks), or a CSV file's path "
        "(docs/pipeline.md)"));
TRAINER_FLAG(kLayout, int, pp, 0,
             "ranks of one pipeline; 0: all ranks / --dp, and of hybrid 1");
TRAINER_FLAG(kLayout, int, dp, 0,
             "replicas of the model, each with its own data; 0: what the other "
             "axes of the mesh leave");
TRAINER_FLAG(kBatch, int64_t, microbatches, 8,
             "micro-batches of --batch_size examples per optimizer step and "
             "replica");
TRAINER_FLAG(
    kSpeed, int, chunks, 0,
    "stages per rank; 0: the schedule's own (2 for interleaved_1f1b, zbv and "
    "dualpipev)");
