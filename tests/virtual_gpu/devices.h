// The devices of a virtual machine and their memory.
//
// A device's memory is a range of addresses that the host cannot read or write,
// as on a real GPU; its contents lie elsewhere in the process (Contents), zero
// until written, so that what no kernel computes is never garbage.
#ifndef RANKWISE_TESTS_VIRTUAL_GPU_DEVICES_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_DEVICES_H_

#include <cstddef>
#include <string>

namespace rankwise::virtual_gpu {

// RANKWISE_VIRTUAL_GPUS of the machine, as far as CUDA_VISIBLE_DEVICES shows
// them to this process.
int VisibleDevices();

// The machine's number of the process's `device`.
int MachineIndex(int device);

// Of this thread.
int CurrentDevice();
bool SetCurrentDevice(int device);

inline constexpr size_t kDeviceBytes = size_t{16} << 30;

// Null where `bytes` are not free.
void* AllocateOnDevice(int device, size_t bytes);
// False if `pointer` is not the start of an allocation.
bool FreeOnDevice(void* pointer);
size_t FreeBytes(int device);

void* AllocatePinned(size_t bytes);
bool FreePinned(void* pointer);
bool IsPinned(const void* pointer);

// The device whose memory holds the address, live or not; -1 for the host's.
int DeviceOf(const void* pointer);
// Whether [pointer, pointer + bytes) lies in one live allocation.
bool IsAllocated(const void* pointer, size_t bytes);
// Where the host finds the contents of device memory; `pointer` itself for
// memory of the host.
char* Contents(const void* pointer);

// False if it was enabled before.
bool EnablePeerAccess(int device, int peer);
bool MayAccess(int device, int peer);

// Reports what a real GPU would punish by wrong values or a crash: one line on
// standard error, and the process's exit code is 70.
void ReportFault(const std::string& what);

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_DEVICES_H_
