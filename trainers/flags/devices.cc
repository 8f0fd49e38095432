// A flag of the trainers that use several devices in one process:
// data_parallel, model_parallel and pipeline. hybrid links it only to refuse
// it.
#include <string>

#include "trainers/flag_rules.h"

TRAINER_FLAG(kLayout, std::string, devices, "",
             "devices on which this process runs the whole model, one per "
             "pipeline rank or "
             "replica of data_parallel, as in cuda:0,cuda:1; each cpu is a "
             "slot that runs the same code. "
             "Empty: cpu,cpu for model_parallel without --nproc");
