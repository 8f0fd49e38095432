#!/usr/bin/env bash
# stand_ins.sh COMPILER LIBRARY OUT...: writes libraries named OUT that load LIBRARY, in the same folder, and define nothing but their
# version.
set -euo pipefail
compiler="$1"
library="$2"
shift 2

versions="$(mktemp)"
trap 'rm -f "$versions"' EXIT
for out in "$@"; do
  name="$(basename "$out")"
  version="$name"
  [[ "$name" != libnvshmem* ]] || version=NVSHMEM
  echo "$version { global: *; };" >"$versions"
  # A version needs a symbol.
  echo "int ${name//[.-]/_}_is_virtual = 1;" |
    "$compiler" -x c - -shared -o "$out" -Wl,-soname,"$name" -Wl,--version-script="$versions" \
      -Wl,--no-as-needed -x none "$library" -Wl,-rpath,"\$ORIGIN"
done
