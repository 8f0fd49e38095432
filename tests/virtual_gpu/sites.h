// Seeded faults (seeded_faults.py): the places in the program that request a
// wait, an event or a device, one of which can be skipped.
#ifndef RANKWISE_TESTS_VIRTUAL_GPU_SITES_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_SITES_H_

namespace rankwise::virtual_gpu {

// Whether the call must do nothing, because it comes from the place in the
// program named by RANKWISE_VIRTUAL_GPU_SKIP. With
// RANKWISE_VIRTUAL_GPU_SITES=FILE the places of all calls are appended to FILE
// at process exit, as "CALL:ADDRESS:ADDRESS", of the two innermost functions of
// the program.
bool IsSkipped(const char* call);

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_SITES_H_
