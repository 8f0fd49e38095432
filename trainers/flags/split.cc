// A flag of the trainers that cut a model into stages: model_parallel, pipeline
// and hybrid.
#include <string>

#include "trainers/flag_rules.h"

TRAINER_FLAG(kLayout, std::string, split, "flops",
             "where to cut: layers, parameters, flops, time (balanced; time is "
             "profiled), or the first layer of each later stage, as in 2,5");
