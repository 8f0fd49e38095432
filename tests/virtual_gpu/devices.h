// The devices of a virtual machine and their memory.
//
// A device's memory is a range of addresses that the host cannot access, as on
// a real GPU; its contents are elsewhere in the process (Contents), zero until
// written, so that values that no kernel computes are never garbage.
#ifndef RANKWISE_TESTS_VIRTUAL_GPU_DEVICES_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_DEVICES_H_

#include <cstddef>
#include <string>

namespace rankwise::virtual_gpu {

// Returns RANKWISE_VIRTUAL_GPUS, restricted by CUDA_VISIBLE_DEVICES.
int VisibleDevices();

// Returns the machine's index of the process's `device`.
int MachineIndex(int device);

// The current device of this thread.
int CurrentDevice();
bool SetCurrentDevice(int device);

inline constexpr size_t kDeviceBytes = size_t{16} << 30;

// Returns nullptr if there are not enough free bytes.
void* AllocateOnDevice(int device, size_t bytes);
// Returns false if `pointer` is not the start of an allocation.
bool FreeOnDevice(void* pointer);
size_t FreeBytes(int device);

void* AllocatePinned(size_t bytes);
bool FreePinned(void* pointer);
bool IsPinned(const void* pointer);

// Returns the device whose memory contains the address, live or not; -1 for
// host memory.
int DeviceOf(const void* pointer);
// Whether [pointer, pointer + bytes) is within one live allocation.
bool IsAllocated(const void* pointer, size_t bytes);
// Returns the host's address of the contents of device memory; `pointer` itself
// for host memory.
char* Contents(const void* pointer);

// Returns false if it was already enabled.
bool EnablePeerAccess(int device, int peer);
bool MayAccess(int device, int peer);

// Reports an error that would cause wrong values or a crash on a real GPU:
// prints a line to standard error, and changes the process's exit code to 70.
void ReportFault(const std::string& what);

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_DEVICES_H_
