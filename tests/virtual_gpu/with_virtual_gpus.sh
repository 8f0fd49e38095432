#!/usr/bin/env bash
# with_virtual_gpus.sh PROGRAM [ARGUMENT]...: runs a program of the CUDA build, and its child processes, on virtual GPUs.
set -euo pipefail
folder="$0.runfiles/rankwise/tests/virtual_gpu"
[[ -d "$folder" ]] || folder="$(dirname "${BASH_SOURCE[0]}")"
folder="$(cd "$folder" && pwd)"

libraries="$(printf '%s ' "$folder"/lib*.so "$folder"/lib*.so.*)"
export LD_PRELOAD="${libraries% }"
export RANKWISE_VIRTUAL_GPUS="${RANKWISE_VIRTUAL_GPUS:-8}"
export PATH="$folder:$PATH"
exec "$@"
