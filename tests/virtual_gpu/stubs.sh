#!/usr/bin/env bash
# stubs.sh LIBRARY...: writes C with a weak function for every symbol that these libraries of LibTorch import from NVIDIA's, so that they
# load without them. Functions without an implementation here fail if that matters and otherwise do nothing.
set -euo pipefail

imports() {
  nm --dynamic --undefined-only "$@" 2>/dev/null | awk 'NF { print $NF }' | sed 's/@.*//' | sort -u
}

# Return value of functions that are not implemented: each library's own error if a silent success would hide it.
result_of() {
  case "$1" in
    cudnnGetVersion) echo 91900 ;;
    cudnn*) echo 1001 ;;            # CUDNN_STATUS_NOT_INITIALIZED
    nccl* | nvshmem* | nvrtc*) echo 5 ;;
    cudaGraph* | cudaIpc* | cudaMallocAsync | cudaFreeAsync | cudaMemPool* | cudaDeviceGetDefaultMemPool | cudaHostRegister) echo 801 ;;  # cudaErrorNotSupported
    *) echo 0 ;;
  esac
}

for symbol in $(imports "$@"); do
  case "$symbol" in
    cuda* | __cuda* | cublas* | cudnn* | cusparse* | cusolver* | cufft* | cufile* | cuFile* | curand* | cupti* | nccl* | nvshmem* | nvrtc* | cu[A-Z]*)
      if [[ "$symbol" == *String ]]; then
        printf '__attribute__((weak)) const char* %s(void) { return "not there on a virtual GPU"; }\n' "$symbol"
        continue
      fi
      printf '__attribute__((weak)) long %s(void) { return %s; }\n' "$symbol" "$(result_of "$symbol")"
      ;;
  esac
done
