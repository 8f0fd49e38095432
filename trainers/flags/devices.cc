// A flag of the trainers that use several devices in one process:
// data_parallel, model_parallel and pipeline. hybrid links it only to refuse
// it.
#include <string>

#include "trainers/flag_rules.h"

TRAINER_FLAG(
    kLayout, std::string, devices, "",
    "run the whole model in this process, with each rank of its pipeline, or "
    "each replica of data_parallel, on one of these: cuda:0,cuda:1; each cpu "
    "is a slot that runs the same code. Empty, for model_parallel without "
    "--nproc: cpu,cpu");
