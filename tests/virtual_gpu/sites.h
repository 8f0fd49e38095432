// Seeded faults (seeded_faults.py): the places in the program that call for a
// wait, an event or a device, one of which can be left out.
#ifndef RANKWISE_TESTS_VIRTUAL_GPU_SITES_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_SITES_H_

namespace rankwise::virtual_gpu {

// Whether the call is to do nothing: it comes from the place in the program
// that RANKWISE_VIRTUAL_GPU_SKIP names. With RANKWISE_VIRTUAL_GPU_SITES=FILE
// the places of all calls are appended to FILE when the process ends, as
// "CALL:ADDRESS:ADDRESS", of the two innermost functions of the program.
bool IsSkipped(const char* call);

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_SITES_H_
