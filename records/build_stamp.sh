#!/usr/bin/env bash
# Bazel's workspace status command: identifies the code of a build for stamped binaries (run_origin.h).
# Runs in the workspace's root. Without git the commit is unknown, but the sources are still hashed.
# Prints "KEY VALUE" lines. Bazel relinks stamped binaries if a STABLE_ value changed, so a commit alone relinks nothing.
set -uo pipefail
export LC_ALL=C GIT_OPTIONAL_LOCKS=0

# Sources of trainers and benchmarks.
folders=(records samplers parallel trainers comm_bench third_party)
settings=(.bazelrc WORKSPACE)
[[ ! -e user.bazelrc ]] || settings+=(user.bazelrc)

source_hash() {
  {
    find "${folders[@]}" -type f \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \
      -o -name '*.bzl' -o -name 'BUILD' -o -name '*.BUILD' \) ! -name '*_test.cc' ! -name '*_for_test.*' -print0 || exit
    printf '%s\0' "${settings[@]}"
  } | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16
}

# No hash is better than a partial one; a failing command here would fail the build.
hash="$(source_hash 2>/dev/null)" && echo "STABLE_RANKWISE_SOURCE_HASH $hash"

# Sources unpacked inside another repository do not belong to its commit.
if [[ "$(git rev-parse --show-toplevel 2>/dev/null)" == "$(pwd -P)" ]] &&
  commit="$(git rev-parse --verify --quiet HEAD)" &&
  changes="$(git status --porcelain -- "${folders[@]}" .bazelrc WORKSPACE 2>/dev/null)"; then
  echo "RANKWISE_GIT_COMMIT $commit"
  if [[ -z "$changes" ]]; then
    echo "RANKWISE_GIT_STATE clean"
  else
    echo "RANKWISE_GIT_STATE modified"
  fi
fi
exit 0
