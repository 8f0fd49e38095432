#ifndef RANKWISE_SAMPLERS_LOADER_SINGLE_THREADED_H_
#define RANKWISE_SAMPLERS_LOADER_SINGLE_THREADED_H_

namespace rankwise {

// Makes ATen operators that the calling thread runs use that thread alone; all
// other threads keep their number. (at::set_num_threads would change what
// threads started later get, too.)
void RunOperatorsSingleThreaded();

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_LOADER_SINGLE_THREADED_H_
